// safetensors files: the input as it stands, and with the size of its header made to fit, which mutations seldom hit.
#include "lapse/core/safetensors.h"

#include "fuzz.h"

namespace {

void read(const std::string& content) {
  lapse::refused([&] {
    const lapse::SafetensorsFile file("input", content);
    size_t bytes = 0;
    for (const auto& [name, tensor] : file.tensors()) {
      bytes += tensor.bytes.size();
      lapse::require(tensor.bytes.size() % lapse::dtype_size(tensor.dtype) == 0, "a tensor ends within an element",
                     name);
      lapse::require(&file.tensor(name) == &tensor, "a tensor is not found", name);
    }
    lapse::require(bytes <= content.size(), "tensors overlap");
    file.checksum();
    file.meta("config");
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string content = lapse::as_text(data, size);
  read(content);
  const uint64_t header = content.rfind('}') + 1;  // 0 where there is none
  read(std::string(reinterpret_cast<const char*>(&header), sizeof header) + content);
  return 0;
}
