#include "lapse/interop/golden_t5.h"

#include "lapse/interop/golden_comparison.h"
#include "lapse/interop/t5.h"
#include "lapse/model/tensor_file.h"
#include "lapse/ops/aten.h"
#include "lapse/train/config.h"

namespace lapse {

using at::Tensor;

bool is_t5_golden(const SafetensorsFile& file) { return file.metadata().contains("t5"); }

std::vector<GoldenError> run_t5_golden(const SafetensorsFile& file, at::ScalarType type) {
  const auto load = [&](const std::string& name) { return to_tensor(file.tensor(name)); };
  const std::string path = file.path().string();
  const T5Config t5 = read_t5_config(file.meta("t5"), path);
  Config config;
  parse_config(config.sections(), file.meta("config"), path + ", its configuration");
  const Tensor input = load("input"), target = load("target"), lengths = load("lengths");
  Transformer model(t5.model, config.method(), t5.vocabulary, input.size(1), Random(0, "golden"));
  model.to(type);
  for (auto& [name, tensor] : model.parameters()) {
    const Tensor given = load("param." + t5_name(name));
    require_golden_shape(t5_name(name), given, tensor->sizes());
    tensor->detach().copy_(given);
  }
  const auto forward = [&](const Tensor& target) {
    auto memory = model.begin(input.size(0), Stored::inputs);
    return model.forward(
        input, memory,
        {.lengths = lengths, .target = target, .source = load("source"), .source_lengths = load("source_lengths")});
  };
  GoldenComparison comparison;
  const Tensor padding = at::arange(input.size(1)) >= lengths.unsqueeze(1);  // its logits mean nothing
  const auto scored = [&](const Tensor& logits) { return logits.masked_fill(padding.unsqueeze(2), 0); };
  comparison.compare("logits", "logits", scored(forward({}).logits), scored(load("logits")));
  const Likelihood found = forward(target).likelihood;
  const Tensor loss = found.nats / static_cast<double>(found.scored);
  comparison.compare("loss", "loss", loss.view(1), load("loss"));
  loss.backward();
  for (auto& [name, tensor] : model.parameters())
    comparison.compare("grad", "grad." + t5_name(name), tensor->grad(), load("grad." + t5_name(name)));
  return comparison.errors();
}

}  // namespace lapse
