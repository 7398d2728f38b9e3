// The kernels that build_kernels.py compiled, found by name and launched with arguments by name.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lapse/ops/cuda/driver.h"

namespace lapse::cuda {

constexpr int64_t kAlignment = 16;  ///< bytes; kernels are compiled for tensors that begin at a multiple of them

/// What a kernel is given, by the names of its parameters in Python. A kernel may leave names alone that others take;
/// one that is missing, or a tensor whose elements are of another type, is a c10::Error.
class Arguments {
 public:
  Arguments& set(const char* name, const at::Tensor& tensor);  ///< contiguous, alive until the launch
  Arguments& set(const char* name, int64_t number);
  Arguments& set(const char* name, double number);

 private:
  friend class Kernel;
  struct Value {
    const at::Tensor* tensor = nullptr;
    double real = 0;
    int64_t integer = 0;
    bool is_real = false;
  };
  std::map<std::string, Value> values_;
};

class Kernel {
 public:
  int64_t queries, rows;  ///< of its tile; 0 where it has none
  int64_t heads;          ///< that a program takes

  int64_t groups(int64_t of) const { return (of + heads - 1) / heads; }  ///< programs for so many heads

  /// On the current device and `like`'s current stream.
  void launch(Grid grid, const Arguments& arguments, const at::Tensor& like) const;

 private:
  friend class Kernels;
  std::string name_, symbol_;
  int64_t threads_, shared_;
  std::pair<int64_t, int64_t> cubin_, ptx_;                      // offset and length in the file's code
  std::vector<std::pair<std::string, std::string>> parameters_;  // name, type
  void* function_ = nullptr;                                     // null until it is loaded
};

/// The kernels for one architecture; loaded by the driver when they are first asked for.
class Kernels {
 public:
  /// For the current device, from lapse_kernels.bin beside this library.
  static Kernels& get();
  /// c10::Error where a kernel of that name was not compiled. Any thread may call it.
  const Kernel& find(const std::string& name);

  Kernels(const std::string& path, int architecture);

 private:
  std::string path_, code_;
  int architecture_;
  std::map<std::string, Kernel> kernels_;
  std::map<std::string, int> built_for_;
  std::mutex loading_;  // agents act on several threads
};

/// Where get() reads from.
std::string kernels_path();

}  // namespace lapse::cuda
