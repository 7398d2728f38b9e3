// Work of a device that the host asks for once, and then again by one call: on NVIDIA's GPUs a CUDA graph. For many
// short kernels asking takes longer than doing.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <vector>

namespace lapse {

class Graph {
 public:
  virtual ~Graph() = default;

  /// Calls `work` once, and records what it asks of the device, which does none of it yet. Whatever the host computes
  /// from shapes, numbers and addresses is recorded as it is now; so `work` may not wait for the device, and what it
  /// reads and writes must stay where it is. Tensors that it makes keep their memory as long as the graph.
  void record(const std::function<void()>& work);
  /// Does the work that was recorded, behind all that the device was asked for before.
  virtual void replay() = 0;

 protected:
  virtual void begin() = 0;
  virtual void end() = 0;

 private:
  std::vector<at::Tensor> sources_;
};

/// A graph; it may use the memory of one made before by the same factory, or null.
using GraphFactory = std::function<std::unique_ptr<Graph>(at::Device, const Graph* before)>;

/// Graphs of this kind of device are made so from now on.
void register_graphs(at::DeviceType type, GraphFactory make);
/// Whether the device has graphs: not the CPU, and none where the environment says LAPSE_GRAPHS=0.
bool has_graphs(at::Device device);
/// c10::Error if it has none. The graph takes what memory of `before` (null: none) is free by the time it records: of
/// the two no replays may run at once, and only what somebody still holds of the other's tensors keeps its values.
std::unique_ptr<Graph> make_graph(at::Device device, const Graph* before = nullptr);

/// While work is recorded: keeps a tensor of the CPU that the device is to read again at every replay.
void keep_for_replay(const at::Tensor& source);

}  // namespace lapse
