#include "lapse/core/gzip.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "lapse/core/error.h"
#include "lapse/core/read_limit.h"

namespace lapse {
namespace {

constexpr size_t kPiece = size_t{1} << 16;
constexpr size_t kMostTimes = 100, kSmall = 100'000'000;  // gzip itself reaches 1000 times, for a file of zeros

class Inflater {
 public:
  Inflater(std::string_view input, const std::string& origin)
      : input_(input), origin_(origin), limit_(origin + ", inflated", 4), piece_(kPiece) {
    limit_.lower(std::max(kSmall, kMostTimes * input.size()),
                 fmt::format("no text is {} times as large as its gzip file", kMostTimes));
    if (inflateInit2(&stream_, 15 + 16) != Z_OK) fail(origin_ + ": zlib does not start");  // + 16: gzip, CRC checked
  }
  Inflater(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&stream_); }

  std::string run() {
    std::string text;
    while (!input_.empty()) {
      if (!text.empty() && input_.find_first_not_of('\0') == input_.npos) break;  // padding, as tapes have it
      if (!is_gzip(input_)) damaged("something else follows the compressed data");
      inflateReset(&stream_);
      while (!step(text)) continue;
    }
    return text;
  }

 private:
  [[noreturn]] void damaged(const std::string& what) const {
    fail(fmt::format("{}: damaged gzip file ({}); fetch or compress it again", origin_, what));
  }

  // Appends the next piece and tells whether the member is complete.
  bool step(std::string& text) {
    const size_t given = std::min(input_.size(), kPiece);
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input_.data()));
    stream_.avail_in = static_cast<uInt>(given);
    stream_.next_out = reinterpret_cast<Bytef*>(piece_.data());
    stream_.avail_out = static_cast<uInt>(kPiece);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    input_.remove_prefix(given - stream_.avail_in);
    limit_.check(text.size() + kPiece - stream_.avail_out);
    text.append(piece_.data(), kPiece - stream_.avail_out);

    if (status == Z_BUF_ERROR) damaged("it ends too early");  // there is always room, so it wants input
    if (status != Z_OK && status != Z_STREAM_END) damaged(stream_.msg ? stream_.msg : zError(status));
    return status == Z_STREAM_END;
  }

  std::string_view input_;
  const std::string& origin_;
  ReadLimit limit_;
  std::vector<char> piece_;
  z_stream stream_{};
};

}  // namespace

bool is_gzip(std::string_view bytes) { return bytes.substr(0, 2) == "\x1f\x8b"; }

std::string inflate_gzip(std::string_view bytes, const std::string& origin) { return Inflater(bytes, origin).run(); }

}  // namespace lapse
