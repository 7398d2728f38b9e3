#include "lapse/ops/graph.h"

#include <c10/util/Exception.h>

#include <cstdlib>
#include <map>
#include <string_view>
#include <utility>

namespace lapse {
namespace {

std::map<at::DeviceType, GraphFactory>& factories() {
  static std::map<at::DeviceType, GraphFactory> all;
  return all;
}

thread_local std::vector<at::Tensor>* kept_sources = nullptr;  // of the graph that this thread records

bool switched_off() {
  const char* value = std::getenv("LAPSE_GRAPHS");
  return value != nullptr && std::string_view(value) == "0";
}

}  // namespace

void Graph::record(const std::function<void()>& work) {
  struct Keeping {
    explicit Keeping(std::vector<at::Tensor>* to) : before(std::exchange(kept_sources, to)) {}
    ~Keeping() { kept_sources = before; }
    std::vector<at::Tensor>* before;
  };
  begin();
  try {
    const Keeping all(&sources_);
    work();
  } catch (...) {
    try {
      end();
    } catch (...) {  // what went wrong first says more
    }
    throw;
  }
  end();
}

void register_graphs(at::DeviceType type, GraphFactory make) { factories()[type] = std::move(make); }

bool has_graphs(at::Device device) { return factories().count(device.type()) > 0 && !switched_off(); }

std::unique_ptr<Graph> make_graph(at::Device device) {
  TORCH_CHECK(has_graphs(device), "there are no graphs for ", device);
  return factories().at(device.type())(device);
}

void keep_for_replay(const at::Tensor& source) {
  if (kept_sources != nullptr) kept_sources->push_back(source);
}

}  // namespace lapse
