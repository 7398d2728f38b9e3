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
  /// reads and writes must stay where it is. The memory of what it makes is shared with other graphs: after a replay
  /// only what was there before the recording holds its values. c10::Error if it fails; errors of `work` are thrown on.
  void record(const std::function<void()>& work);
  /// Does the work that was recorded, behind all that the device was asked for before. Replays of one device must not
  /// overlap: they belong on one stream.
  virtual void replay() = 0;

 protected:
  virtual void begin() = 0;
  virtual void end() = 0;

 private:
  std::vector<at::Tensor> sources_;
};

using GraphFactory = std::function<std::unique_ptr<Graph>(at::Device)>;

/// Graphs of this kind of device are made so from now on.
void register_graphs(at::DeviceType type, GraphFactory make);
/// Whether the device has graphs: not the CPU, and none where the environment says LAPSE_GRAPHS=0.
bool has_graphs(at::Device device);
/// c10::Error if it has none.
std::unique_ptr<Graph> make_graph(at::Device device);

/// While work is recorded: keeps a tensor of the CPU that the device is to read again at every replay.
void keep_for_replay(const at::Tensor& source);

}  // namespace lapse
