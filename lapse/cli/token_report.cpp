#include "lapse/cli/token_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/data/utf8.h"
#include "lapse/observe/contents.h"

namespace lapse {
namespace {

constexpr size_t kListed = 20;
constexpr size_t kBefore = 40, kAfter = 20;  // bytes of context

/// On one line, and harmless to a terminal.
std::string on_a_line(const std::string& text) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool c1 = c == 0xC2 && next >= 0x80 && next < 0xA0;  // controls of a terminal, too: U+0080 ... U+009F
    if (c == '\n')
      line += "↵";
    else if (c < 32 || c == 127)
      line += fmt::format("\\x{:02X}", c);
    else if (c1)
      line += fmt::format("\\u{:04X}", next), ++i;
    else
      line += text[i];
  }
  return line;
}

std::string quoted(const std::string& text) { return to_text(text); }

/// |C_t| of the i-th query in each layer.
std::vector<int64_t> sizes_of(const TokenLosses& losses, int64_t i) {
  std::vector<int64_t> sizes;
  for (const auto& layer : losses.sizes) sizes.push_back(layer[i]);
  return sizes;
}

/// The document that a token is of: nothing else was read with it. The whole text, if it is not made of documents.
Tokens::Document around(const Tokens& text, int64_t at) {
  const auto& documents = text.documents();
  if (documents.empty()) return {0, text.size()};
  return *std::prev(std::ranges::upper_bound(documents, at, {}, &Tokens::Document::begin));
}

}  // namespace

TokenReport::TokenReport(const Tokens& text, const Vocabulary& vocabulary, const std::string& file)
    : text_(text), vocabulary_(vocabulary) {
  if (!file.empty()) file_.emplace(file);
}

void TokenReport::add(const TokenBlock& block, const TokenLosses& own, const TokenLosses* other) {
  if (block.starts.empty()) fail("--losses and --against are for runs that predict a text token by token");
  const auto smaller = [](const Difference& a, const Difference& b) { return a.size() > b.size(); };
  for (int64_t i = 0; i < std::ssize(block.target); ++i) {
    if (block.target[i] == kUnscored) continue;
    const int64_t at = block.starts[i / block.length] + i % block.length;
    if (file_) {
      const auto token = static_cast<int32_t>(block.target[i]);
      file_->out() << fmt::format(R"({{"at": {}, "token": {}, "text": {}, "nats": {:.6g}, "memory": [{}])", at, token,
                                  quoted(readable(vocabulary_.decode(token))), own.nats[i],
                                  fmt::join(sizes_of(own, i), ", "));
      if (other)
        file_->out() << fmt::format(R"(, "against_nats": {:.6g}, "against_memory": [{}])", other->nats[i],
                                    fmt::join(sizes_of(*other, i), ", "));
      file_->out() << "}\n";
    }
    if (!other) continue;
    const Difference difference = {at, own.nats[i], other->nats[i]};
    sum_ += difference.own - difference.other, ++count_;
    if (largest_.size() == kListed && difference.size() <= largest_[0].size()) continue;
    largest_.push_back(difference);
    std::ranges::push_heap(largest_, smaller);
    if (largest_.size() <= kListed) continue;
    std::ranges::pop_heap(largest_, smaller);
    largest_.pop_back();
  }
  if (file_) file_->check();
}

void TokenReport::close() {
  if (file_) file_->finish();
  file_.reset();
}

std::string TokenReport::bytes_of(int64_t begin, int64_t end) const {
  std::string bytes;
  for (int64_t i = begin; i < end; ++i) bytes += vocabulary_.decode(text_[i]);
  return bytes;
}

Json TokenReport::largest_differences() const {
  auto sorted = largest_;
  std::ranges::sort(sorted, [](const Difference& a, const Difference& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.at < b.at;
  });
  Json all = Json::array();
  for (const auto& difference : sorted) {
    const int64_t at = difference.at;
    const auto [begin, end] = around(text_, at);
    std::string before, after;
    for (int64_t i = at; i > begin && (before.size() < kBefore || begins_within_character(before));)
      before = bytes_of(i - 1, i) + before, --i;
    for (int64_t i = at + 1; i < end; ++i) {
      const std::string next = bytes_of(i, i + 1);
      if (after.size() >= kAfter && !begins_within_character(next)) break;
      after += next;
    }
    all.push_back({{"at", at},
                   {"token", text_[at]},
                   {"before", readable(before)},
                   {"text", readable(bytes_of(at, at + 1))},
                   {"after", readable(after)},
                   {"nats", difference.own},
                   {"against_nats", difference.other}});
  }
  return all;
}

std::string table_of(const Json& differences) {
  std::string table = fmt::format("{:>10}{:>9}{:>9}{:>12}  text\n", "at", "nats", "against", "difference");
  for (const auto& one : differences) {
    const double own = one["nats"], other = one["against_nats"];
    const auto text = [&](const char* name) { return on_a_line(one[name].get<std::string>()); };
    table += fmt::format("{:>10}{:>9.3f}{:>9.3f}{:>+12.3f}  {}[{}]{}\n", one["at"].get<int64_t>(), own, other,
                         own - other, text("before"), text("text"), text("after"));
  }
  return table;
}

}  // namespace lapse
