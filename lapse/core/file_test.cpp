#include "lapse/core/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <fstream>
#include <thread>

#include "lapse/core/testing.h"

namespace lapse {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

class File : public testing::Test {
 protected:
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder_.path())) found.push_back(entry.path().filename().string());
    return found;
  }

  TestFolder folder_;
};

// Makes every file end at `bytes`, as a full disk would.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_;
  sighandler_t handler_;
};

TEST_F(File, RoundTripOfAnyBytes) {
  for (const std::string& bytes : {std::string(), std::string("text\r\n"), std::string("\0\xff\n\0", 4),
                                   std::string(1 << 16, 'x'), std::string(3'000'001, 'y')}) {
    write_file(folder_ / "a", bytes);
    EXPECT_TRUE(read_file(folder_ / "a") == bytes) << bytes.size();
  }
  EXPECT_THAT(names(), UnorderedElementsAre("a"));
}

TEST_F(File, WriterMayWriteSmallAndLargePieces) {
  std::string expected;
  write_file(folder_ / "a", [&](std::ostream& out) {
    for (int i = 0; i < 3000; ++i) {
      const std::string piece = i % 1000 == 999 ? std::string(200'000, 'L') : std::to_string(i) + ",";
      out << piece;
      expected += piece;
      if (i % 7 == 0) out.put('\n'), expected += '\n';
      if (i % 500 == 0) out.flush();
    }
  });
  EXPECT_TRUE(read_file(folder_ / "a") == expected);
}

TEST_F(File, ReplacesALongerFile) {
  write_file(folder_ / "a", "a long old text");
  write_file(folder_ / "a", "new");
  EXPECT_EQ(read_file(folder_ / "a"), "new");
}

TEST_F(File, ReplacesAPartialFileThatACrashLeft) {
  std::ofstream(folder_ / "a.partial") << "half of something much longer";
  write_file(folder_ / "a", "whole");
  EXPECT_EQ(read_file(folder_ / "a"), "whole");
  EXPECT_THAT(names(), UnorderedElementsAre("a"));
}

TEST_F(File, ReadersSeeTheOldFileUntilTheNewIsWhole) {
  write_file(folder_ / "a", "old");
  write_file(folder_ / "a", [&](std::ostream& out) {
    out << std::string(1 << 20, 'x') << std::flush;
    EXPECT_EQ(read_file(folder_ / "a"), "old");
    EXPECT_TRUE(fs::exists(folder_ / "a.partial"));
  });
}

TEST_F(File, TwoDoNotWriteOneFile) {
  FileWriter first(folder_ / "a");
  first.out() << "first";
  EXPECT_THAT(error_of([&] { FileWriter second(folder_ / "a"); }),
              AllOf(HasSubstr((folder_ / "a").string() + "'"), HasSubstr("another process is writing it")));
  first.finish();
  EXPECT_EQ(read_file(folder_ / "a"), "first");
  write_file(folder_ / "a", "second");
  EXPECT_EQ(read_file(folder_ / "a"), "second");
  EXPECT_THAT(names(), UnorderedElementsAre("a"));
}

TEST_F(File, FailedWritesLeaveTheOldFileAndNothingElse) {
  write_file(folder_ / "a", "old");
  const std::string big(1 << 20, 'x');
  const FileSizeLimit limit(100'000);
  const auto in_pieces = [&](std::ostream& out) {
    for (char c : big) out << c;
  };
  for (const auto& action : {std::function<void()>([&] { write_file(folder_ / "a", big); }),
                             std::function<void()>([&] { write_file(folder_ / "a", in_pieces); })}) {
    EXPECT_THAT(error_of(action), AllOf(HasSubstr((folder_ / "a").string() + "'"), HasSubstr("File too large")));
    EXPECT_EQ(read_file(folder_ / "a"), "old");
    EXPECT_THAT(names(), UnorderedElementsAre("a"));
  }
}

TEST_F(File, WriterThatThrowsOrFailsLeavesTheOldFileAndNothingElse) {
  write_file(folder_ / "a", "old");
  EXPECT_THROW(write_file(folder_ / "a", [](std::ostream&) { throw std::out_of_range("mine"); }), std::out_of_range);
  EXPECT_THROW(write_file(folder_ / "a", [](std::ostream& out) { out.setstate(std::ios::failbit); }), Error);
  EXPECT_EQ(read_file(folder_ / "a"), "old");
  EXPECT_THAT(names(), UnorderedElementsAre("a"));
}

// On devices of the test's own: a write_file that is wrong here would put a file in the machine's place of them.
TEST_F(File, FullDeviceIsAnErrorAndDevicesAreNotReplaced) {
  const fs::path full = folder_ / "full", null = folder_ / "null";
  if (mknod(full.c_str(), S_IFCHR | 0600, makedev(1, 7)) != 0 ||
      mknod(null.c_str(), S_IFCHR | 0600, makedev(1, 3)) != 0)
    GTEST_SKIP() << "making devices needs root";
  if (!std::ofstream(full)) GTEST_SKIP() << "this folder allows no devices";
  EXPECT_THAT(error_of([&] { write_file(full, "text"); }), AllOf(HasSubstr("full'"), HasSubstr("No space left")));
  write_file(null, "text");
  EXPECT_TRUE(fs::is_character_file(full));
  EXPECT_TRUE(fs::is_character_file(null));
}

TEST_F(File, PipesAreReadAndWrittenThrough) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  const std::string big(300'000, 'p');
  std::thread writer([&] { write_file(folder_ / "pipe", big); });
  EXPECT_TRUE(read_file(folder_ / "pipe") == big);
  writer.join();
  EXPECT_TRUE(fs::is_fifo(folder_ / "pipe"));
}

TEST_F(File, LinksKeepPointingWhereTheyDid) {
  fs::create_directory(folder_ / "deep");
  write_file(folder_ / "deep/target", "old");
  fs::create_symlink("deep/target", folder_ / "link");
  write_file(folder_ / "link", "new");
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(read_file(folder_ / "deep/target"), "new");
  fs::create_symlink("deep/later", folder_ / "first");
  fs::create_symlink(folder_ / "first", folder_ / "second");
  write_file(folder_ / "second", "what was not there");
  EXPECT_TRUE(fs::is_symlink(folder_ / "first") && fs::is_symlink(folder_ / "second"));
  EXPECT_EQ(read_file(folder_ / "deep/later"), "what was not there");
  fs::create_symlink("none/later", folder_ / "third");
  EXPECT_THAT(error_of([&] { write_file(folder_ / "third", "x"); }), HasSubstr("No such file"));
  EXPECT_TRUE(fs::is_symlink(folder_ / "third"));
}

TEST(ForShell, QuotesWhatAShellWouldTakeApart) {
  EXPECT_EQ(for_shell("runs/my-run_2.0"), "runs/my-run_2.0");
  EXPECT_EQ(for_shell("b run"), "'b run'");
  EXPECT_EQ(for_shell("it's $HOME"), "'it'\\''s $HOME'");
  EXPECT_EQ(for_shell(""), "''");
}

TEST_F(File, PathsThatCannotBeWrittenAreErrorsThatSayWhy) {
  write_file(folder_ / "file", "text");
  EXPECT_THAT(error_of([&] { write_file(folder_.path(), "x"); }),
              AllOf(HasSubstr(folder_.path().string()), HasSubstr("Is a directory")));
  EXPECT_THAT(error_of([&] { write_file(folder_ / "none/a", "x"); }),
              HasSubstr("there is no folder '" + (folder_ / "none").string() + "'"));
  EXPECT_THAT(error_of([&] { write_file(folder_ / "file/a", "x"); }),
              HasSubstr("'" + (folder_ / "file").string() + "' is not a folder"));
  EXPECT_THAT(error_of([&] { write_file("", "x"); }), HasSubstr("cannot write ''"));
  EXPECT_THAT(names(), UnorderedElementsAre("file"));
}

TEST_F(File, PathsThatCannotBeReadAreErrorsThatSayWhy) {
  EXPECT_THAT(error_of([&] { read_file(folder_ / "a"); }),
              AllOf(HasSubstr((folder_ / "a").string()), HasSubstr("No such file")));
  EXPECT_THAT(error_of([&] { read_file(folder_ / "none/a"); }), HasSubstr("there is no folder"));
  EXPECT_THAT(error_of([&] { read_file(folder_.path()); }), HasSubstr("Is a directory"));
  EXPECT_THAT(error_of([&] { read_text_file(folder_ / "a"); }), HasSubstr("No such file"));
}

TEST_F(File, TextFilesAreInflatedByContentNotByName) {
  const std::string packed = {"\x1f\x8b\x08\0\0\0\0\0\x02\x03K\xcd\xc8\x04\0\x8a\xe8\x17(\x03\0\0\0", 23};
  write_file(folder_ / "plain.gz", "not packed");
  EXPECT_EQ(read_text_file(folder_ / "plain.gz"), "not packed");
  write_file(folder_ / "packed.txt", packed);
  EXPECT_EQ(read_file(folder_ / "packed.txt"), packed);
  EXPECT_EQ(read_text_file(folder_ / "packed.txt"), "ehi");
  write_file(folder_ / "short.txt", packed.substr(0, 20));
  EXPECT_THAT(error_of([&] { read_text_file(folder_ / "short.txt"); }), HasSubstr("short.txt: damaged gzip"));
}

TEST_F(File, MakeFolderMakesParentsAndAcceptsAnExistingFolder) {
  make_folder(folder_ / "a/b/c");
  make_folder(folder_ / "a/b/c");
  make_folder(folder_ / "a/b/d/");
  EXPECT_TRUE(fs::is_directory(folder_ / "a/b/c"));
  EXPECT_TRUE(fs::is_directory(folder_ / "a/b/d"));
}

TEST_F(File, MakeFolderFailsWhereAFileIsInTheWay) {
  write_file(folder_ / "a", "x");
  EXPECT_THAT(error_of([&] { make_folder(folder_ / "a"); }), HasSubstr("a file of this name is in the way"));
  EXPECT_THAT(error_of([&] { make_folder(folder_ / "a/b"); }),
              AllOf(HasSubstr((folder_ / "a/b").string()), HasSubstr("Not a directory")));
}

TEST_F(File, NoMoreIsReadThanAsked) {
  write_file(folder_ / "a", std::string(1000, 'x'));
  EXPECT_EQ(read_file(folder_ / "a", 1000).size(), 1000u);
  EXPECT_EQ(error_of([&] { read_file(folder_ / "a", 999); }),
            (folder_ / "a").string() + ": larger than 999 B; no file of this kind is");
}

TEST_F(File, APipeWithoutEndStops) {
  const std::string pipe = folder_ / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto before = signal(SIGPIPE, SIG_IGN);
  std::thread writer([&] {
    std::ofstream out(pipe, std::ios::binary);
    for (const std::string piece(1 << 16, 'x'); out << piece;) continue;
  });
  EXPECT_THAT(error_of([&] { read_file(pipe, 1'000'000); }), HasSubstr("pipe: larger than 1.0 MB"));
  writer.join();
  signal(SIGPIPE, before);
}

TEST_F(File, DevicesAreNoFiles) {
  for (const char* device : {"/dev/zero", "/dev/null", "/dev/urandom"})
    EXPECT_EQ(error_of([&] { read_text_file(device); }),
              std::string("cannot read '") + device + "': it is a device, not a file");
}

TEST_F(File, AFileLargerThanTheMemoryIsRefused) {
  write_file(folder_ / "a", "x");
  std::error_code unsupported;  // a hole takes no room
  fs::resize_file(folder_ / "a", uintmax_t{1} << 43, unsupported);
  if (unsupported) GTEST_SKIP() << "this file system has no files of 8 TB";
  EXPECT_THAT(error_of([&] { read_file(folder_ / "a"); }), HasSubstr("does not fit into the free memory"));
}

TEST_F(File, WhatAPathNamesIsToldOrAnError) {
  write_file(folder_ / "a", "x");
  EXPECT_TRUE(is_file(folder_ / "a"));
  EXPECT_FALSE(is_folder(folder_ / "a"));
  EXPECT_TRUE(is_folder(folder_.path()));
  EXPECT_FALSE(is_there(folder_ / "b"));
  EXPECT_FALSE(is_there(folder_ / "a/b"));
  fs::create_symlink("loop", folder_ / "loop");
  EXPECT_EQ(error_of([&] { is_there(folder_ / "loop"); }),
            "cannot read '" + (folder_ / "loop").string() + "': Too many levels of symbolic links");
  EXPECT_THAT(error_of([&] { is_folder(folder_ / std::string(300, 'n')); }), HasSubstr("File name too long"));
  EXPECT_THAT(error_of([&] { make_folder(folder_ / "loop"); }), HasSubstr("Too many levels"));
}

}  // namespace
}  // namespace lapse
