#include "lapse/core/safetensors.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "lapse/core/error.h"
#include "lapse/core/safetensors_header.h"

static_assert(std::endian::native == std::endian::little, "the format is little-endian, and so are our tensors");

namespace lapse {
namespace {

using nlohmann::json;

constexpr size_t kMaxHeader = 100'000'000;  // the limit of the format's own reader
constexpr std::string_view kChecksum = "lapse.checksum", kNoChecksum = "00000000";

const std::map<std::string, size_t>& dtype_sizes() {
  static const std::map<std::string, size_t> sizes = {
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},     {"I32", 4},
      {"F32", 4},  {"U64", 8}, {"I64", 8}, {"F64", 8},     {"C64", 8}};
  return sizes;
}

// As std::views::keys, which clang 14 does not compile.
template <class Value>
std::vector<std::string> keys_of(const std::map<std::string, Value>& map) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

// Size of a tensor in bytes. The other numbers may not overflow even where the shape has a zero: strides are
// computed from them.
uint64_t tensor_size(const std::string& name, const std::string& dtype, const std::vector<int64_t>& shape) {
  uint64_t size = dtype_size(dtype), limit = std::numeric_limits<int64_t>::max();
  bool empty = false;
  if (shape.size() > kMaxDimensions) fail(fmt::format("tensor '{}' has more than {} dimensions", name, kMaxDimensions));
  for (int64_t n : shape) {
    if (n < 0) fail(fmt::format("tensor '{}' has the negative size {} in its shape", name, n));
    empty |= n == 0;
    const uint64_t factor = std::max<int64_t>(n, 1);
    if (size > limit / factor) fail(fmt::format("tensor '{}' has a shape that no memory holds", name));
    size *= factor;
  }
  return empty ? 0 : size;
}

void check_size(const std::string& name, const TensorEntry& tensor) {
  if (tensor.bytes.size() == tensor_size(name, tensor.dtype, tensor.shape)) return;
  fail(fmt::format("tensor '{}' has {} bytes, which its dtype and shape contradict", name, tensor.bytes.size()));
}

// --- reading ---------------------------------------------------------------------------------------------------------

struct Layout {
  std::string_view header, data;
};

Layout split(std::string_view file) {
  uint64_t size;
  if (file.size() < sizeof size) fail("shorter than the smallest safetensors file");
  std::memcpy(&size, file.data(), sizeof size);
  if (size > kMaxHeader)
    fail("is no safetensors file, as checkpoints are: it does not begin with the size of a header");
  if (size > file.size() - sizeof size) fail("ends within its header");
  return {file.substr(sizeof size, size), file.substr(sizeof size + size)};
}

TensorEntry locate(const std::string& name, const SafetensorsHeader::Entry& entry, std::string_view data) {
  if (entry.begin > entry.end || entry.end > data.size()) fail(fmt::format("tensor '{}' lies outside the file", name));
  TensorEntry tensor{entry.dtype, entry.shape, data.substr(entry.begin, entry.end - entry.begin)};
  check_size(name, tensor);
  return tensor;
}

void check_cover(const std::map<std::string, TensorEntry>& tensors, std::string_view data) {
  std::vector<std::string_view> ranges;
  for (const auto& [name, tensor] : tensors) ranges.push_back(tensor.bytes);
  std::ranges::sort(ranges, {}, [](std::string_view range) { return std::pair(range.data(), range.size()); });
  const char* end = data.data();
  for (std::string_view range : ranges) {
    if (range.data() != end) fail("tensors overlap or leave a gap");
    end += range.size();
  }
  if (end != data.data() + data.size()) fail("bytes follow the last tensor");
}

// --- checksum --------------------------------------------------------------------------------------------------------

// The checksum covers the whole file with zeros in its own place, so that not even white space may change.
uint32_t crc(std::string_view bytes, uint32_t before = 0) {
  if (bytes.empty()) return before;  // its pointer may be null, for which zlib returns the initial value
  return static_cast<uint32_t>(crc32_z(before, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// Where the checksum's digits begin in the header's text. Within a JSON string the quotes would be escaped, so this is
// the key itself.
size_t checksum_position(std::string_view header) {
  const std::string key = fmt::format("\"{}\":\"", kChecksum);
  const size_t found = header.find(key);
  return found == header.npos ? found : found + key.size();
}

void check_checksum(std::string_view file, std::string_view header, std::map<std::string, std::string>& metadata) {
  for (const auto& [key, value] : metadata)
    if (edit_distance(key, std::string(kChecksum)) == 1) fail(fmt::format("metadata has the unknown key '{}'", key));
  const auto stored = metadata.find(std::string(kChecksum));
  if (stored == metadata.end()) return;
  const size_t found = checksum_position(header);
  if (found == header.npos || stored->second.size() != kNoChecksum.size()) fail("its checksum is malformed");
  const size_t digits = static_cast<size_t>(header.data() - file.data()) + found;
  const uint32_t actual = crc(file.substr(digits + kNoChecksum.size()), crc(kNoChecksum, crc(file.substr(0, digits))));
  if (stored->second != fmt::format("{:08x}", actual)) fail("its checksum does not agree with its content");
  metadata.erase(stored);
}

// --- writing ---------------------------------------------------------------------------------------------------------

using Tensors = std::map<std::string, TensorEntry>;

// Larger elements first: then every tensor lies at a multiple of its element's size, and there is no gap.
std::vector<const Tensors::value_type*> file_order(const Tensors& tensors) {
  std::vector<const Tensors::value_type*> order;
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::ranges::stable_sort(order, std::greater(), [](const auto* tensor) { return dtype_size(tensor->second.dtype); });
  return order;
}

// The part of the file before the data, with zeros for a checksum.
std::string file_head(const std::vector<const Tensors::value_type*>& order,
                      const std::map<std::string, std::string>& metadata) {
  json tree;
  tree[kSafetensorsMetadata] = metadata;
  tree[kSafetensorsMetadata][kChecksum] = kNoChecksum;
  uint64_t offset = 0;
  for (const auto* named : order) {
    const auto& [name, tensor] = *named;
    if (name == kSafetensorsMetadata) fail(fmt::format("a tensor cannot be named '{}'", name));
    check_size(name, tensor);
    const uint64_t end = offset + tensor.bytes.size();
    tree[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string header = tree.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (header.size() > kMaxHeader) fail("the names and metadata are larger than the format allows");
  const uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + header;
}

}  // namespace

size_t dtype_size(const std::string& dtype) {
  const auto found = dtype_sizes().find(dtype);
  if (found != dtype_sizes().end()) return found->second;
  fail(fmt::format("unknown dtype '{}'{}", dtype, did_you_mean(dtype, keys_of(dtype_sizes()))));
}

SafetensorsFile::SafetensorsFile(const fs::path& path) : SafetensorsFile(path, read_file(path)) {}

SafetensorsFile::SafetensorsFile(fs::path path, std::string content)
    : path_(std::move(path)), content_(std::move(content)) {
  try {
    const Layout layout = split(content_);
    SafetensorsHeader header = parse_safetensors_header(layout.header);
    for (const auto& [name, entry] : header.tensors) tensors_.emplace(name, locate(name, entry, layout.data));
    metadata_ = std::move(header.metadata);
    check_cover(tensors_, layout.data);
    check_checksum(content_, layout.header, metadata_);
  } catch (const Error& error) {
    throw DamagedFile(one_line(fmt::format("{}: {} (truncated or altered file)", path_.string(), error.what())));
  }
}

uint32_t SafetensorsFile::checksum() const { return crc(content_); }

const TensorEntry& SafetensorsFile::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found != tensors_.end()) return found->second;
  fail(fmt::format("{}: there is no tensor '{}'{}", path_.string(), name, did_you_mean(name, keys_of(tensors_))));
}

const std::string& SafetensorsFile::meta(const std::string& key) const {
  const auto found = metadata_.find(key);
  if (found != metadata_.end()) return found->second;
  fail(fmt::format("{}: there is no metadata '{}'{}", path_.string(), key, did_you_mean(key, keys_of(metadata_))));
}

void write_safetensors(const fs::path& path, const Tensors& tensors,
                       const std::map<std::string, std::string>& metadata) {
  std::vector<const Tensors::value_type*> order;
  std::string head;
  try {
    order = file_order(tensors);
    head = file_head(order, metadata);
  } catch (const json::exception&) {
    fail(fmt::format("cannot write '{}': a tensor's name or the metadata are not valid UTF-8", path.string()));
  } catch (const Error& error) {
    fail(fmt::format("cannot write '{}': {}", path.string(), error.what()));
  }

  uint32_t checksum = crc(head);
  for (const auto* named : order) checksum = crc(named->second.bytes, checksum);
  head.replace(checksum_position(head), kNoChecksum.size(), fmt::format("{:08x}", checksum));
  write_file(path, [&](std::ostream& out) {
    out << head;
    for (const auto* named : order) out << named->second.bytes;
  });
}

}  // namespace lapse
