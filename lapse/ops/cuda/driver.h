// NVIDIA's driver, loaded when it is asked for: nothing of CUDA is linked, and no toolkit is needed to build.
#pragma once

#include <cstdint>

namespace lapse::cuda {

struct Grid {
  int64_t x = 1, y = 1, z = 1;
};

/// The few functions of libcuda that launch compiled kernels, in the context that is current (libtorch's). Each throws
/// c10::Error with the driver's own words.
class Driver {
 public:
  /// The driver of this machine; c10::Error where there is none.
  static const Driver& get();

  int device() const;                          ///< of the current context
  int architecture() const;                    ///< of that device: 80 for compute capability 8.0
  void* load_module(const void* image) const;  ///< a cubin, or PTX that ends with a zero byte
  void* function(void* module, const char* symbol) const;
  void allow_shared(void* function, int64_t bytes) const;  ///< more than 48 KiB must be asked for
  void launch(void* function, Grid grid, int64_t threads, int64_t shared, void* stream, void** arguments) const;

 private:
  Driver();
  void check(int result, const char* what) const;

  int (*current_device_)(int*);
  int (*get_device_)(int*, int);
  int (*retain_context_)(void**, int);
  int (*set_context_)(void*);
  int (*attribute_)(int*, int, int);
  int (*load_)(void**, const void*);
  int (*function_)(void**, void*, const char*);
  int (*set_attribute_)(void*, int, int);
  int (*launch_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
  int (*error_string_)(int, const char**);
};

}  // namespace lapse::cuda
