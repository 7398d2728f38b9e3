#include "lapse/train/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <ctime>
#include <limits>
#include <vector>

#include "lapse/core/error.h"
#include "lapse/core/testing.h"
#include "tensorboard.pb.h"

namespace lapse {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

uint64_t masked_crc(std::string_view bytes) {
  uint64_t crc = crc32c(bytes);
  return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF;
}

/// Takes the file's records apart again.
std::vector<tensorboard::Event> read_events(const fs::path& path) {
  std::string bytes = read_file(path);
  std::string_view rest = bytes;
  std::vector<tensorboard::Event> events;
  while (rest.size() >= 16) {
    EXPECT_EQ(little_endian(rest.substr(8, 4)), masked_crc(rest.substr(0, 8)));
    uint64_t length = little_endian(rest.substr(0, 8));
    if (length > rest.size() - 16) break;
    std::string_view message = rest.substr(12, length);
    EXPECT_EQ(little_endian(rest.substr(12 + length, 4)), masked_crc(message));
    EXPECT_TRUE(events.emplace_back().ParseFromArray(message.data(), static_cast<int>(length)));
    rest.remove_prefix(16 + length);
  }
  EXPECT_TRUE(rest.empty()) << rest.size() << " bytes are left";
  return events;
}

class TensorBoardTest : public ::testing::Test {
 protected:
  std::vector<fs::path> files() const {
    std::vector<fs::path> paths;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_.path())) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  TestFolder folder_;
};

TEST(Crc32c, KnownValues) {
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);  // RFC 3720
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
}

TEST_F(TensorBoardTest, WritesTheVersionAndThenTheScalars) {
  TensorBoard board(folder_.path(), 0);
  board.scalar("loss", 1, 2.5);
  board.scalar("loss", int64_t{1} << 40, -1e-3);
  board.flush();
  ASSERT_EQ(files().size(), 1u);
  std::vector<tensorboard::Event> events = read_events(files()[0]);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  ASSERT_EQ(events[1].summary().value_size(), 1);
  EXPECT_EQ(events[1].step(), 1);
  EXPECT_EQ(events[1].summary().value(0).tag(), "loss");
  EXPECT_EQ(events[1].summary().value(0).simple_value(), 2.5f);
  EXPECT_EQ(events[2].step(), int64_t{1} << 40);
  EXPECT_EQ(events[2].summary().value(0).simple_value(), -1e-3f);
  for (const tensorboard::Event& event : events) {
    EXPECT_NEAR(event.wall_time(), static_cast<double>(std::time(nullptr)), 60);
  }
}

TEST_F(TensorBoardTest, ValuesThatAreEasilyLost) {
  const double infinity = std::numeric_limits<double>::infinity();
  TensorBoard board(folder_.path(), 0);
  for (double value : {0.0, std::nan(""), infinity, -infinity}) board.scalar("x", 0, value);
  board.flush();
  std::vector<tensorboard::Event> events = read_events(files()[0]);
  ASSERT_EQ(events.size(), 5u);
  for (size_t i = 1; i < 5; ++i) ASSERT_TRUE(events[i].summary().value(0).has_simple_value());
  EXPECT_EQ(events[1].summary().value(0).simple_value(), 0);
  EXPECT_TRUE(std::isnan(events[2].summary().value(0).simple_value()));
  EXPECT_EQ(events[3].summary().value(0).simple_value(), infinity);
  EXPECT_EQ(events[4].summary().value(0).simple_value(), -infinity);
}

TEST_F(TensorBoardTest, AResumedRunAnnouncesItsFirstStep) {
  TensorBoard board(folder_.path(), 300);
  std::vector<tensorboard::Event> events = read_events(files()[0]);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].step(), 300);
  EXPECT_EQ(events[1].session_log().status(), tensorboard::SessionLog::START);
}

TEST_F(TensorBoardTest, WritersOfTheSameSecondKeepTheirOrder) {
  for (int i = 1; i <= 12; ++i) TensorBoard(folder_.path(), i);
  std::vector<fs::path> paths = files();
  ASSERT_EQ(paths.size(), 12u);
  for (int i = 1; i <= 12; ++i) EXPECT_EQ(read_events(paths[i - 1]).at(1).step(), i);
}

TEST_F(TensorBoardTest, ANewFileComesAfterThoseOfAFastClock) {
  write_file(folder_ / "events.out.tfevents.5000000000.host.1.0", "");
  write_file(folder_ / "events.out.tfevents.99999x9999.host.1", "");
  write_file(folder_ / "events.out.tfevents.77", "");
  write_file(folder_ / "notes", "");
  TensorBoard board(folder_.path(), 0);
  std::string name_begin = "events.out.tfevents.5000000001.";
  EXPECT_EQ(std::ranges::count_if(
                files(), [&](const fs::path& path) { return path.filename().string().starts_with(name_begin); }),
            1);
}

TEST_F(TensorBoardTest, MakesItsFolderOrSaysWhyNot) {
  TensorBoard board(folder_ / "a" / "b", 0);
  EXPECT_TRUE(fs::is_directory(folder_ / "a" / "b"));
  write_file(folder_ / "file", "x");
  EXPECT_THAT([&] { TensorBoard(folder_ / "file", 0); }, ThrowsMessage<Error>(HasSubstr((folder_ / "file").string())));
}

TEST_F(TensorBoardTest, AFullDiskIsAnError) {
  TensorBoard board(folder_.path(), 0);
  auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old_limit;
  getrlimit(RLIMIT_FSIZE, &old_limit);
  rlimit limit = {100, old_limit.rlim_max};
  setrlimit(RLIMIT_FSIZE, &limit);
  auto write = [&] {
    for (int step = 0; step < 10; ++step) board.scalar("loss", step, 1);
    board.flush();
  };
  std::string message;
  try {
    write();
  } catch (const Error& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old_limit);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_THAT(message, HasSubstr("File too large"));
  EXPECT_THAT(message, HasSubstr(folder_.path().string()));
}

}  // namespace
}  // namespace lapse
