// CUDA graphs for lapse/ops/graph.h: a library of its own (liblapse_graphs.so), because it alone needs CUDA's headers
// to be compiled. They come with PyTorch; where they do not, there are no graphs.
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "lapse/ops/graph.h"

namespace lapse {
namespace {

/// What all graphs of a device share, and one of them at a time records with. Never released: libtorch counts who uses
/// a pool of memory, and takes none for a recording that nobody used in between, so the first graph stays.
struct Shared {
  std::mutex recording;
  std::optional<c10::cuda::CUDAStream> stream;  // for which libtorch keeps one workspace for products
  std::shared_ptr<at::cuda::CUDAGraph> first;
  bool broken = false;  // libtorch did not leave a recording behind, and another one would find its remains

  static Shared& of(c10::DeviceIndex device) {
    static std::mutex mutex;
    static auto* all = new std::map<c10::DeviceIndex, Shared>;
    const std::scoped_lock lock(mutex);
    return (*all)[device];
  }
};

class CudaGraph : public Graph {
 public:
  explicit CudaGraph(at::Device device) : device_(device), shared_(Shared::of(device.index())) {}

  void replay() override {
    const c10::cuda::CUDAGuard there(device_);
    graph_->replay();
  }

 protected:
  // Relaxed: other threads, and what libtorch does to find memory, are none of the graph's business.
  void begin() override {
    std::unique_lock mine(shared_.recording);
    TORCH_CHECK(!shared_.broken, "a recording on ", device_, " failed before");
    if (!shared_.stream) shared_.stream = c10::cuda::getStreamFromPool(false, device_.index());
    there_.emplace(*shared_.stream);
    try {
      graph_->capture_begin(shared_.first ? shared_.first->pool() : c10::MempoolId_t{0, 0},
                            cudaStreamCaptureModeRelaxed);
    } catch (...) {
      there_.reset();
      throw;
    }
    recording_ = std::move(mine);
  }
  void end() override {
    struct Leave {
      ~Leave() { graph.there_.reset(), graph.recording_.unlock(); }
      CudaGraph& graph;
    } const leave{*this};
    shared_.broken = true;
    graph_->capture_end();
    shared_.broken = false;
    if (!shared_.first) shared_.first = graph_;
  }

 private:
  at::Device device_;
  Shared& shared_;
  std::shared_ptr<at::cuda::CUDAGraph> graph_ = std::make_shared<at::cuda::CUDAGraph>();
  std::unique_lock<std::mutex> recording_;
  std::optional<c10::cuda::CUDAStreamGuard> there_;
};

const bool registered = [] {
  register_graphs(at::kCUDA, [](at::Device device) { return std::make_unique<CudaGraph>(device); });
  return true;
}();

}  // namespace
}  // namespace lapse
