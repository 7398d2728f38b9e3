// CUDA graphs for lapse/ops/graph.h: a library of its own (liblapse_graphs.so), because it alone needs CUDA's headers
// to be compiled. They come with PyTorch; where they do not, there are no graphs.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>
#include <memory>
#include <optional>

#include "lapse/ops/graph.h"

namespace lapse {
namespace {

/// All are recorded on one stream, for which libtorch then keeps one workspace for products.
c10::cuda::CUDAStream recording_stream(c10::DeviceIndex device) {
  static thread_local std::map<c10::DeviceIndex, c10::cuda::CUDAStream> streams;
  auto known = streams.find(device);
  if (known == streams.end()) known = streams.emplace(device, c10::cuda::getStreamFromPool(false, device)).first;
  return known->second;
}

class CudaGraph : public Graph {
 public:
  CudaGraph(at::Device device, const CudaGraph* before) : device_(device) {
    if (before != nullptr) pool_ = before->pool_;
  }

  void replay() override {
    const c10::cuda::CUDAGuard there(device_);
    graph_.replay();
  }

 protected:
  // Relaxed: other threads, and what libtorch does to find memory, are none of the graph's business.
  void begin() override {
    recording_.emplace(recording_stream(device_.index()));
    graph_.capture_begin(pool_, cudaStreamCaptureModeRelaxed);
  }
  void end() override {
    graph_.capture_end();
    recording_.reset();
    pool_ = graph_.pool();
  }

 private:
  at::Device device_;
  at::cuda::CUDAGraph graph_;
  c10::MempoolId_t pool_ = {0, 0};  // none yet
  std::optional<c10::cuda::CUDAStreamGuard> recording_;
};

const bool registered = [] {
  register_graphs(at::kCUDA, [](at::Device device, const Graph* before) {
    return std::make_unique<CudaGraph>(device, static_cast<const CudaGraph*>(before));
  });
  return true;
}();

}  // namespace
}  // namespace lapse
