#include "lapse/core/safetensors_header.h"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "lapse/core/error.h"

namespace lapse {
namespace {

using nlohmann::json;

// Takes the header as a stream of events: a tree of a hostile header would fill the memory before it could be checked,
// and a tree keeps only one of two equal keys.
//
// Invariant: level_ counts the open brackets. 1: names of tensors; 2: within the metadata or a tensor's entry, which
// name_ names; 3: within the list named key_ of such an entry.
class HeaderReader : public nlohmann::json_sax<json> {
 public:
  SafetensorsHeader take() { return std::move(header_); }

  bool null() override { misplaced(); }
  bool boolean(bool) override { misplaced(); }
  bool number_integer(number_integer_t) override { misplaced(); }
  bool number_float(number_float_t, const string_t&) override { misplaced(); }
  bool binary(binary_t&) override { misplaced(); }
  bool end_array() override { return --level_, true; }

  bool number_unsigned(number_unsigned_t number) override {
    if (level_ != 3 || number > std::numeric_limits<int64_t>::max()) misplaced();
    auto& numbers = *list(key_);
    if (numbers.size() == kMaxDimensions) misplaced();
    numbers.push_back(static_cast<int64_t>(number));
    return true;
  }

  bool string(string_t& value) override {
    if (in_metadata()) {
      if (!header_.metadata.emplace(key_, value).second) twice(key_);
    } else {
      if (level_ != 2 || key_ != "dtype") misplaced();
      if (dtype_) twice(key_);
      dtype_ = value;
    }
    return true;
  }

  bool start_array(size_t) override {
    const bool fits = level_ == 2 && !in_metadata() && (key_ == "shape" || key_ == "data_offsets");
    if (!fits) misplaced();
    if (list(key_)) twice(key_);
    list(key_).emplace();
    return ++level_, true;
  }

  bool start_object(size_t) override {
    if (level_ > 1) misplaced();
    return ++level_, true;
  }

  bool key(string_t& value) override {
    (level_ == 1 ? name_ : key_) = value;
    if (level_ == 1 && value == kSafetensorsMetadata && std::exchange(has_metadata_, true)) twice(name_);
    return true;
  }

  bool end_object() override {
    if (level_ == 2 && !in_metadata()) finish_entry();
    return --level_, true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
    fail("the header is not valid JSON");
  }

 private:
  using Numbers = std::optional<std::vector<int64_t>>;

  bool in_metadata() const { return level_ == 2 && name_ == kSafetensorsMetadata; }
  Numbers& list(const std::string& key) { return key == "shape" ? shape_ : offsets_; }

  [[noreturn]] void twice(const std::string& key) const { fail(fmt::format("the header names '{}' twice", key)); }

  [[noreturn]] void misplaced() const {
    if (level_ == 0) fail("the header is not a JSON object");
    if (level_ == 1 && name_ == kSafetensorsMetadata) fail("the metadata are not a JSON object");
    if (in_metadata()) fail(fmt::format("metadata '{}' is not a string", key_));
    if (level_ == 1) fail(fmt::format("tensor '{}' is not described by a JSON object", name_));
    fail(fmt::format("tensor '{}' has no valid '{}'", name_, key_));
  }

  void finish_entry() {
    if (!dtype_ || !shape_ || !offsets_ || offsets_->size() != 2)
      fail(fmt::format("tensor '{}' is not described by dtype, shape and two data_offsets", name_));
    SafetensorsHeader::Entry entry{std::move(*dtype_), std::move(*shape_), static_cast<uint64_t>(offsets_->at(0)),
                                   static_cast<uint64_t>(offsets_->at(1))};
    if (!header_.tensors.emplace(name_, std::move(entry)).second) twice(name_);
    dtype_.reset(), shape_.reset(), offsets_.reset();
  }

  SafetensorsHeader header_;
  int level_ = 0;
  std::string name_, key_;
  bool has_metadata_ = false;
  std::optional<std::string> dtype_;
  Numbers shape_, offsets_;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text) {
  if (text.find('\0') != text.npos) fail("the header is not valid JSON");  // the parser would stop there, content
  HeaderReader reader;
  json::sax_parse(text.begin(), text.end(), &reader);
  return reader.take();
}

}  // namespace lapse
