// JSON lines: multiple-choice questions, and their labels where something follows a zero byte.
#include "fuzz.h"
#include "lapse/data/questions.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text = lapse::as_text(data, size);
  const size_t end = text.find('\0');
  lapse::refused([&] {
    std::optional<lapse::NamedText> labels;
    if (end != text.npos) labels = {text.substr(end + 1), "labels"};
    for (const lapse::Question& question : lapse::parse_questions({text.substr(0, end), "input"}, labels)) {
      lapse::require(question.answer >= 0 && question.answer < std::ssize(question.candidates), "no right answer",
                     text);
      for (const auto& candidate : question.candidates) lapse::require(!candidate.empty(), "an empty candidate", text);
    }
  });
  return 0;
}
