// Command lines of every verb: the input's lines are the arguments. They are parsed, and nothing that they ask for is
// done.
#include "lapse/cli/program.h"

#include "fuzz.h"

extern "C" const char* __lsan_default_suppressions() { return "leak:libtorch\nleak:libc10\n"; }

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static lapse::Program program;  // its making takes milliseconds, and parsing begins anew each time
  std::string text = lapse::as_text(data, size);
  std::vector<const char*> arguments = {"lapse"};
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    arguments.push_back(text.data() + at);
    if (end < text.size()) text[end] = '\0';
    at = end + 1;
  }
  lapse::Action action;
  const bool refused =
      lapse::refused([&] { action = program.parse(static_cast<int>(arguments.size()), arguments.data()); });
  lapse::require(refused || action, "neither an action nor an error", text);
  return 0;
}
