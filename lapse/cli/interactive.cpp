#include "lapse/cli/interactive.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <iostream>

#include "lapse/cli/prompt.h"
#include "lapse/core/error.h"
#include "lapse/core/process.h"
#include "lapse/core/progress.h"
#include "lapse/read/highlight.h"

namespace lapse {
namespace {

constexpr const char* kHelp =
    "Type a line: the model goes on from it, and remembers what it can of all lines and answers before.\n"
    "An empty line lets it go on by itself. A line that begins with // is read from its second / on.\n"
    "  /memory  how many rows each layer holds, and how much of the text is still remembered\n"
    "  /text    the text so far, what is still remembered highlighted\n"
    "  /reset   forget everything\n"
    "  /help    this\n"
    "Ctrl-C stops an answer; Ctrl-D, or Ctrl-C when nothing is being written, ends.\n";
const std::vector<std::string> kCommands = {"/memory", "/text", "/reset", "/help"};

/// The lines of standard input. Unlike std::cin it stops to wait for one when the process is interrupted.
class Lines {
 public:
  /// The next line, without its end. False after the last, and when interrupted. Error for one that is longer than any
  /// that a person types, which is passed over: a line without end would take all memory.
  bool next(std::string& line) {
    line.clear();
    size_t length = 0;
    while (at_ < size_ || refill()) {
      const char letter = buffer_[at_++];
      if (letter == '\n') return check(length), finish(line);
      if (length++ < kLongest) line += letter;
    }
    if (length == 0 || interrupted()) return false;
    return check(length), finish(line);
  }

 private:
  static constexpr size_t kLongest = size_t{1} << 20;

  static void check(size_t length) {
    if (length > kLongest)
      fail(fmt::format("a line of more than {} bytes is passed over; --prompt-file reads long texts", kLongest));
  }

  static bool finish(std::string& line) {
    if (line.ends_with('\r')) line.pop_back();
    return true;
  }

  /// Waits for more, but not for long at a time: a signal just before poll would not end it.
  bool refill() {
    constexpr int kMilliseconds = 200;
    while (!interrupted()) {
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (const int ready = ::poll(&input, 1, kMilliseconds); ready == 0 || (ready < 0 && errno == EINTR)) continue;
      const ssize_t count = ::read(STDIN_FILENO, buffer_.data(), buffer_.size());
      if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      at_ = 0, size_ = static_cast<size_t>(std::max<ssize_t>(count, 0));
      return size_ > 0;
    }
    return false;
  }

  std::array<char, 1 << 16> buffer_;
  size_t at_ = 0, size_ = 0;
};

class Talk {
 public:
  Talk(Generator& generator, const Transformer& model, const Vocabulary& vocabulary, const InteractiveOptions& options)
      : generator_(generator), model_(model), vocabulary_(vocabulary), options_(options) {}

  void run() {
    if (!options_.prompt.empty()) read(options_.prompt, "--prompt", "nothing is kept");
    const bool terminal = isatty(STDIN_FILENO) != 0;
    if (terminal) std::cerr << "Type a line for the model to go on from. /help lists the commands, Ctrl-D ends.\n";
    std::string line;
    while (!interrupted()) {
      if (terminal) std::cerr << "> " << std::flush;
      try {
        if (!lines_.next(line)) break;
        turn(line);
      } catch (const Error& error) {
        note(error.what());
      }
      if (!std::cout) return;  // the reader of a pipe has gone
    }
    if (terminal) std::cerr << '\n';
  }

 private:
  void turn(const std::string& line) {
    if (line.starts_with("//")) return answer(line.substr(1));
    if (!line.starts_with('/')) return answer(line);
    if (line == "/memory") return show_memory();
    if (line == "/text") return show_text();
    if (line == "/help") return static_cast<void>(std::cout << kHelp << std::flush);
    if (line != "/reset")
      fail(fmt::format("there is no {}{}; /help lists the commands", line, did_you_mean(line, kCommands)));
    generator_.reset();
    read_.clear(), before_ = 0;
    note("everything is forgotten");
  }

  static void note(const std::string& text) {
    std::cout.flush();
    std::cerr << "lapse: " << text << std::endl;
  }

  /// Tokens that begin a new line, where the vocabulary has such.
  std::vector<int32_t> line_end() const {
    std::vector<TextBytes> bytes;
    auto tokens = vocabulary_.encode("\n", &bytes);
    if (std::ranges::any_of(bytes, [](const TextBytes& of) { return of.unknown > 0; })) tokens.clear();
    return tokens;
  }

  /// The model reads a text; what came before it is ended by a line end. `rest`: what to say of an interrupt.
  void read(const std::string& text, const std::string& origin, const std::string& rest) {
    auto tokens = encode_prompt(vocabulary_, text, origin);
    const bool first = generator_.seen() == 0;
    if (tokens.empty() && !first) return;
    const auto begin = first && !tokens.empty() ? std::vector<int32_t>() : line_end();
    tokens.insert(tokens.begin(), begin.begin(), begin.end());
    if (first && vocabulary_.bos() >= 0) tokens.insert(tokens.begin(), vocabulary_.bos());
    if (tokens.empty()) fail("nothing to go on from: type at least one character or word");
    const int64_t context = model_.context();
    if (context > 0 && generator_.seen() + std::ssize(tokens) > context)
      fail(fmt::format(
          "the model reads windows of {} tokens, of which {} are used: these {} do not fit; /reset begins anew",
          context, generator_.seen(), tokens.size()));
    const int64_t count = read_tokens(generator_, model_, tokens);
    read_.insert(read_.end(), tokens.begin(), tokens.begin() + count);
    if (count < std::ssize(tokens))
      fail(fmt::format("{}: interrupted after {} of {} tokens; {}", origin, count, tokens.size(), rest));
  }

  void answer(const std::string& line) {
    if (generator_.full()) fail_full();
    const Interruptible interruptible;
    read(line, "your line", "the rest is not read");
    for (int64_t i = 0; (options_.tokens == 0 || i < options_.tokens) && !interrupted() && std::cout; ++i) {
      if (generator_.full()) {
        std::cout << std::endl;
        fail_full();
      }
      const int32_t token = generator_.next();
      read_.push_back(token);
      std::cout << vocabulary_.decode(token) << std::flush;
    }
    std::cout << std::endl;
  }

  [[noreturn]] void fail_full() const {
    fail(fmt::format("the model's window of {} tokens is full; /reset begins anew", model_.context()));
  }

  void show_memory() const {
    const auto remembered = generator_.remembered();
    const auto some = std::ranges::count_if(remembered, [](int32_t layers) { return layers > 0; });
    const auto in_all = std::ranges::count(remembered, static_cast<int32_t>(model_.layers().size()));
    std::cout << fmt::format("rows held, layer by layer: {} ({})\n", fmt::join(generator_.memory_sizes(), ", "),
                             byte_size(static_cast<double>(generator_.memory_bytes())))
              << fmt::format("of {} tokens, {} are remembered in some layer, {} in every layer\n", generator_.seen(),
                             some, in_all);
    if (model_.context() > 0) std::cout << fmt::format("the window has {} tokens in all\n", model_.context());
    std::cout << std::flush;
  }

  void show_text() const {
    std::vector<std::string> pieces;
    for (const int32_t token : read_) pieces.push_back(vocabulary_.decode(token));
    auto remembered = generator_.remembered();
    remembered.erase(remembered.begin(), remembered.begin() + before_);
    remembered.resize(pieces.size());  // the last token of a full window has not been read
    std::cout << highlight(pieces, remembered, static_cast<int32_t>(model_.layers().size()), options_.colour)
              << std::endl;
  }

  Generator& generator_;
  const Transformer& model_;
  const Vocabulary& vocabulary_;
  const InteractiveOptions& options_;
  Lines lines_;
  int64_t before_ = generator_.seen();  // tokens of a stream that goes on
  std::vector<int32_t> read_;           // and written: all tokens since the start or the last /reset
};

}  // namespace

void talk(Generator& generator, const Transformer& model, const Vocabulary& vocabulary,
          const InteractiveOptions& options) {
  Talk(generator, model, vocabulary, options).run();
}

}  // namespace lapse
