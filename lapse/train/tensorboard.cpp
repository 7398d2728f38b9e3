#include "lapse/train/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>

#include "lapse/core/error.h"

namespace lapse {
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
constexpr size_t kTimeDigits = 10;

constexpr std::array<uint32_t, 256> make_crc_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82F63B78u : crc >> 1;
    table[byte] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kCrcTable = make_crc_table();

/// The format's guard against CRCs of text that holds CRCs.
uint32_t masked_crc(std::string_view bytes) {
  uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

template <class Unsigned>
std::string little_endian(Unsigned value) {
  std::string bytes;
  for (size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  return bytes;
}

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

std::string host_name() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

fs::path new_path(const fs::path& folder) {
  auto time = static_cast<int64_t>(now());
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (!name.starts_with(kPrefix) || name.size() < kPrefix.size() + kTimeDigits) continue;
    const char* digits = name.data() + kPrefix.size();
    int64_t earlier = 0;
    if (std::from_chars(digits, digits + kTimeDigits, earlier).ptr == digits + kTimeDigits) {
      time = std::max(time, earlier + 1);
    }
  }
  if (error) fail(fmt::format("cannot list the folder '{}': {}", folder.string(), error.message()));
  return folder / fmt::format("{}{:010}.{}.{}", kPrefix, time, host_name(), getpid());
}

// The few fields of tensorboard.proto in protobuf's wire format. libtorch exports names of the protobuf that it
// carries, so that a process should not hold Debian's libprotobuf beside it.
enum Wire : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

std::string varint(uint64_t value) {
  std::string bytes;
  for (; value > 127; value >>= 7) bytes += static_cast<char>(value | 128);
  return bytes + static_cast<char>(value);
}
std::string field(int number, Wire wire, const std::string& value) {
  return varint(static_cast<uint64_t>(number) << 3 | wire) + value;
}
std::string field(int number, std::string_view bytes) {
  return field(number, kBytes, varint(bytes.size()) + std::string(bytes));
}

std::string event(int64_t step, int number, std::string_view what) {
  return field(1, kFixed64, little_endian(std::bit_cast<uint64_t>(now()))) +
         field(2, kVarint, varint(static_cast<uint64_t>(step))) + field(number, what);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (char c : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xFF];
  return ~crc;
}

TensorBoard::TensorBoard(const fs::path& folder, int64_t first_step) {
  make_folder(folder);
  path_ = new_path(folder);
  write(event(0, 3, "brain.Event:2"));
  if (first_step > 0) write(event(first_step, 7, field(1, kVarint, varint(1))));  // a SessionLog, START
  flush();
}

void TensorBoard::scalar(const std::string& tag, int64_t step, double value) {
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  write(event(step, 5, field(1, field(1, tag) + field(2, kFixed32, little_endian(bits)))));
}

void TensorBoard::flush() {
  append_to_file(path_, waiting_);
  waiting_.clear();
}

void TensorBoard::write(const std::string& message) {
  std::string length = little_endian<uint64_t>(message.size());
  waiting_ += length + little_endian(masked_crc(length)) + message + little_endian(masked_crc(message));
}

}  // namespace lapse
