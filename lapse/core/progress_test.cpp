#include "lapse/core/progress.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <limits>
#include <vector>

namespace lapse {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const ProgressState kTraining = {"train", "updates", "loss 2.31 bpb", 2000, 0, 860, 252.9};

TEST(ProgressLine, WithABar) {
  EXPECT_EQ(progress_line(kTraining, 120),
            "train  43% [########            ]  860/2000 updates  3.4/s  eta 5:35  loss 2.31 bpb");
}

TEST(ProgressLine, Plain) {
  EXPECT_EQ(progress_line(kTraining, 0), "train  43%  860/2000 updates  3.4/s  eta 5:35  loss 2.31 bpb");
}

TEST(ProgressLine, UnknownTotal) {
  const ProgressState state = {"read", "MB", "", 0, 0, 12, 4};
  EXPECT_EQ(progress_line(state, 0), "read  12 MB  3/s");
  EXPECT_EQ(progress_line(state, 120), "read  12 MB  3/s");
}

TEST(ProgressLine, BeginningAndEnd) {
  EXPECT_EQ(progress_line({"train", "updates", "", 10, 0, 0, 0}, 100),
            "train   0% [                    ]  0/10 updates");
  EXPECT_EQ(progress_line({"train", "updates", "", 10, 0, 10, 2}, 100),
            "train 100% [####################]  10/10 updates  5/s");
  EXPECT_THAT(progress_line({"train", "updates", "", 1000, 0, 999, 2}, 0), StartsWith("train  99%"));
}

TEST(ProgressLine, RateOfAResumedJobCountsFromItsBeginning) {
  EXPECT_EQ(progress_line({"train", "updates", "", 2000, 1000, 1010, 10}, 0),
            "train  50%  1010/2000 updates  1/s  eta 16:30");
}

TEST(ProgressLine, NoRateFromNoTimeOrNoWork) {
  EXPECT_EQ(progress_line({"t", "u", "", 10, 0, 5, 1e-6}, 0), "t  50%  5/10 u");
  EXPECT_EQ(progress_line({"t", "u", "", 10, 5, 5, 60}, 0), "t  50%  5/10 u");
}

TEST(ProgressLine, Rates) {
  const auto rate = [](int64_t done, double seconds) { return progress_line({"t", "u", "", 0, 0, done, seconds}, 0); };
  EXPECT_THAT(rate(1, 300), EndsWith("  0.0033/s"));
  EXPECT_THAT(rate(123, 100), EndsWith("  1.2/s"));
  EXPECT_THAT(rate(999, 100), EndsWith("  10/s"));
  EXPECT_THAT(rate(1234567, 1), EndsWith("  1234567/s"));
}

TEST(ProgressLine, BeyondItsLimits) {
  EXPECT_THAT(progress_line({"t", "u", "", 10, 0, 15, 1}, 100), StartsWith("t 100% [####################]  15/10 u"));
  EXPECT_THAT(progress_line({"t", "u", "", 10, 0, -5, 1}, 100), StartsWith("t   0% [                    ]  -5/10 u"));
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_THAT(progress_line({"t", "u", "", most, 0, most, 1}, 0), StartsWith("t 100%"));
}

TEST(ProgressLine, FitsIntoNarrowTerminals) {
  const int whole = static_cast<int>(progress_line(kTraining, 1000).size());
  for (int columns = 1; columns < 120; ++columns) {
    const std::string line = progress_line(kTraining, columns);
    EXPECT_LE(line.size(), static_cast<size_t>(columns));
    const bool has_bar = line.find('[') != line.npos;
    EXPECT_EQ(has_bar, columns >= whole) << "the bar gives way, not the numbers";
  }
  EXPECT_EQ(progress_line(kTraining, 12), "train  43%  ");
}

TEST(ProgressLine, CutsBetweenCharacters) {
  const ProgressState state = {"été", "mots", "", 0, 0, 1, 0};
  EXPECT_EQ(progress_line(state, 3), "été");
  EXPECT_EQ(progress_line(state, 1), "é");
}

TEST(ProgressLine, StaysOneLine) {
  EXPECT_EQ(progress_line({"t", "u", "a\nb\rc\x1b[2J", 0, 0, 1, 0}, 0), "t  1 u  a b c [2J");
}

TEST(Duration, Formats) {
  EXPECT_EQ(duration(0), "0 s");
  EXPECT_EQ(duration(-3), "0 s");
  EXPECT_EQ(duration(0.4), "0 s");
  EXPECT_EQ(duration(12), "12 s");
  EXPECT_EQ(duration(59.4), "59 s");
  EXPECT_EQ(duration(59.6), "1:00");
  EXPECT_EQ(duration(332), "5:32");
  EXPECT_EQ(duration(3599.5), "1:00:00");
  EXPECT_EQ(duration(3900), "1:05:00");
  EXPECT_EQ(duration(86399), "23:59:59");
  EXPECT_EQ(duration(86400), "1 d 0 h");
  EXPECT_EQ(duration(2 * 86400 + 3 * 3600 + 59), "2 d 3 h");
  EXPECT_EQ(duration(std::numeric_limits<double>::quiet_NaN()), "?");
  EXPECT_EQ(duration(std::numeric_limits<double>::infinity()), "?");
  EXPECT_THAT(duration(1e18), EndsWith(" h"));
}

TEST(ByteSize, Formats) {
  EXPECT_EQ(byte_size(0), "0 B");
  EXPECT_EQ(byte_size(512), "512 B");
  EXPECT_EQ(byte_size(999), "999 B");
  EXPECT_EQ(byte_size(1000), "1.0 kB");
  EXPECT_EQ(byte_size(1.5e6), "1.5 MB");
  EXPECT_EQ(byte_size(999'949), "999.9 kB");
  EXPECT_EQ(byte_size(999'950), "1.0 MB");
  EXPECT_EQ(byte_size(2.1e9), "2.1 GB");
  EXPECT_EQ(byte_size(5e18), "5000.0 PB");
  EXPECT_EQ(byte_size(-2000), "-2.0 kB");
}

// --- elsewhere than on a terminal ------------------------------------------------------------------------------------

template <class Job>
std::string plain_output(Job job) {
  testing::internal::CaptureStderr();
  job();
  return testing::internal::GetCapturedStderr();
}

TEST(Progress, ShortJobsPrintTheLastLineOnly) {
  EXPECT_EQ(plain_output([] {
              Progress progress("train", "updates", 3);
              for (int i = 1; i <= 3; ++i) progress.update(i, "loss " + std::to_string(i));
            }),
            "train 100%  3/3 updates  loss 3\n");
}

TEST(Progress, PlainLinesComeAtTheirInterval) {
  EXPECT_EQ(plain_output([] {
              Progress progress("train", "updates", 3, 1, false, 0);
              for (int i = 2; i <= 3; ++i) progress.update(i);
            }),
            "train  66%  2/3 updates\ntrain 100%  3/3 updates\n");
}

TEST(Progress, FinishEndsItForGood) {
  EXPECT_EQ(plain_output([] {
              Progress progress("train", "updates", 3);
              progress.update(1);
              progress.finish();
              progress.update(2);
              progress.print("late");
              progress.finish();
            }),
            "train  33%  1/3 updates\n");
}

TEST(Progress, TheLastLineStandsBelowTheLastState) {
  EXPECT_EQ(plain_output([] {
              Progress progress("train", "updates", 3);
              progress.update(2);
              progress.finish("saved");
            }),
            "train  66%  2/3 updates\nsaved\n");
}

TEST(Progress, PrintsLinesBetween) {
  EXPECT_EQ(plain_output([] {
              Progress progress("train", "updates", 3);
              progress.print("begin");
              progress.update(3);
              progress.print("saved");
            }),
            "begin\nsaved\ntrain 100%  3/3 updates\n");
}

TEST(Progress, SilentIfQuietOrNeverUpdated) {
  EXPECT_EQ(plain_output([] {
              Progress progress("train", "updates", 3, 0, true, 0);
              progress.update(1);
              progress.print("saved");
            }),
            "");
  EXPECT_EQ(plain_output([] { Progress progress("train", "updates", 3); }), "");
}

// --- on a terminal ---------------------------------------------------------------------------------------------------

// Puts a terminal of `columns` in the place of stderr.
class Terminal {
 public:
  explicit Terminal(unsigned short columns) : before_(dup(STDERR_FILENO)), master_(posix_openpt(O_RDWR | O_NOCTTY)) {
    if (master_ < 0 || grantpt(master_) != 0 || unlockpt(master_) != 0) return;
    const int slave = open(ptsname(master_), O_RDWR | O_NOCTTY);
    const winsize size = {24, columns, 0, 0};
    works_ = slave >= 0 && ioctl(slave, TIOCSWINSZ, &size) == 0 && dup2(slave, STDERR_FILENO) >= 0;
    close(slave);
  }
  ~Terminal() {
    dup2(before_, STDERR_FILENO);
    close(before_);
    close(master_);
  }

  bool works() const { return works_; }

  // What was written, with line breaks as the terminal shows them: "\r\n".
  std::string output() {
    std::string text;
    pollfd ready = {master_, POLLIN, 0};
    while (poll(&ready, 1, 200) > 0) {  // what was written may take a moment to arrive
      char piece[4096];
      const ssize_t size = read(master_, piece, sizeof piece);
      if (size <= 0) break;
      text.append(piece, static_cast<size_t>(size));
    }
    return text;
  }

 private:
  int before_, master_;
  bool works_ = false;
};

std::vector<std::string> redraws(const std::string& output) {
  const std::string erase = "\r\x1b[K";
  std::vector<std::string> lines;
  for (size_t begin = output.find(erase); begin != output.npos;) {
    const size_t end = output.find(erase, begin + erase.size());
    lines.push_back(output.substr(begin + erase.size(), end - begin - erase.size()));
    begin = end;
  }
  return lines;
}

TEST(ProgressOnTerminal, RedrawsOneLineAtMostTenTimesASecond) {
  Terminal terminal(100);
  if (!terminal.works()) GTEST_SKIP() << "no terminal to be had";
  {
    Progress progress("train", "updates", 1000);
    for (int i = 1; i <= 1000; ++i) progress.update(i, "loss");
  }
  const auto lines = redraws(terminal.output());
  ASSERT_GE(lines.size(), 2u);
  EXPECT_LE(lines.size(), 4u);
  EXPECT_THAT(lines.front(), StartsWith("train   0% [                    ]  1/1000 updates"));
  EXPECT_THAT(lines.back(), StartsWith("train 100% [####################]  1000/1000 updates"));
  EXPECT_THAT(lines.back(), EndsWith("loss\r\n"));
  for (size_t i = 0; i + 1 < lines.size(); ++i) EXPECT_THAT(lines[i], Not(HasSubstr("\n")));
}

TEST(ProgressOnTerminal, PrintsAboveTheBar) {
  Terminal terminal(100);
  if (!terminal.works()) GTEST_SKIP() << "no terminal to be had";
  {
    Progress progress("t", "u", 0);
    progress.print("first");
    progress.update(1);
    progress.print("second");
  }
  EXPECT_EQ(terminal.output(), "first\r\n\r\x1b[Kt  1 u\r\x1b[Ksecond\r\n\r\x1b[Kt  1 u\r\n");
}

TEST(ProgressOnTerminal, NeverFillsTheLine) {
  Terminal terminal(20);
  if (!terminal.works()) GTEST_SKIP() << "no terminal to be had";
  {
    Progress progress("train", "updates", 10);
    progress.update(5, "a long note that does not fit");
  }
  EXPECT_THAT(redraws(terminal.output()), ElementsAre("train  50%  5/10 up\r\n"));
}

}  // namespace
}  // namespace lapse
