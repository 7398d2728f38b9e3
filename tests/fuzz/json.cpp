// What a checkpoint carries as JSON: its vocabulary, and the state of its run. Each input is read as both.
#include "lapse/core/json.h"
#include "fuzz.h"
#include "lapse/data/vocabulary.h"
#include "lapse/train/history.h"

namespace {

using lapse::refused;
using lapse::require;
using lapse::Vocabulary;

void read_vocabulary(const std::string& text) {
  refused([&] {
    const Vocabulary vocabulary = Vocabulary::from_json(text);
    const std::string written = vocabulary.to_json();
    require(Vocabulary::from_json(written).to_json() == written, "another vocabulary when read back", written);
    for (int32_t id = 0; id < std::min<int64_t>(vocabulary.size(), 300); ++id) vocabulary.decode(id);
    if (vocabulary.sentinels() > 0) vocabulary.decode(vocabulary.sentinel(0));
    vocabulary.decode(vocabulary.encode("A text, é ☃\n of two lines.\n"));
  });
}

/// What the trainer asks of a state (lapse/train/trainer.cpp), but for tensors.
void read_state(const std::string& text) {
  refused([&] {
    const lapse::Json json = lapse::parse_json(text, "input");
    const lapse::JsonObject state(json, "input");
    refused([&] { history_of(state).validations.dump(); });
    refused([&] { state.counter("random"), state.truth("validation_due"); });
    refused([&] {
      const auto sums = state.object("sums");
      sums.number("loss"), sums.whole("updates", 0, 99), sums.whole("bytes", 0), sums.object("more").numbers();
    });
    refused([&] {
      const auto streams = state.object("streams");
      streams.whole("position", 0), streams.truth("restart"), streams.texts("names"), streams.objects("parts");
    });
    json.dump();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = lapse::as_text(data, size);
  read_vocabulary(text);
  read_state(text);
  return 0;
}
