// A team of threads: every body runs once, on any thread, and errors are passed on.
#include "lapse/ops/parallel/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "lapse/ops/parallel/parallel.h"
#include "lapse/ops/parallel/threads_testing.h"

namespace lapse {
namespace {

Region nothing(int64_t) { return {}; }

TEST(Team, RunsEveryBodyOnce) {
  for (const int threads : {1, 2, 3, 8}) {  // more than this machine may have
    const Threads scope(threads);
    std::vector<std::atomic<int>> runs(threads);
    int calls = 0;
    Team::with([&] {
      ASSERT_EQ(Team::current() == nullptr, threads == 1);
      if (threads == 1) return;
      ASSERT_EQ(Team::current()->size(), threads);
      for (; calls < 500; ++calls) {
        Team::current()->run([&](int64_t i) { ++runs[i]; }, nothing);
        for (const auto& run : runs) ASSERT_EQ(run, calls + 1);  // all are done when `run` returns
      }
    });
    for (const auto& run : runs) EXPECT_EQ(run, calls);
    EXPECT_EQ(Team::current(), nullptr);
  }
}

TEST(Team, MembersWorkAtTheSameTime) {
  const Threads scope(2);
  std::atomic<bool> begun = false, together = false;
  std::thread::id other;
  std::atomic<int64_t> present = 0;
  at::parallel_for(0, 2, 1, [&](int64_t, int64_t) { ++present; });
  if (present < 2) GTEST_SKIP() << "OpenMP gives one thread";
  Team::with([&] {
    for (int i = 0; i < 3; ++i) {  // also after a pause in which members fall asleep
      begun = together = false;
      if (i == 2) std::this_thread::sleep_for(std::chrono::milliseconds(50));
      Team::current()->run(
          [&](int64_t member) {
            if (member == 1) {
              other = std::this_thread::get_id();
              begun = true;
              return;
            }
            const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
            while (!begun && std::chrono::steady_clock::now() < end) std::this_thread::yield();
            together = begun.load();
          },
          nothing);
      EXPECT_TRUE(together);
      EXPECT_NE(other, std::this_thread::get_id());
    }
  });
}

TEST(Team, SharesOutTasks) {
  for (const int threads : {1, 2, 3})
    for (const int64_t n : {0, 1, 2, 5, 1001}) {
      const Threads scope(threads);
      std::vector<std::atomic<int>> runs(n), again(n);
      Team::with([&] {
        for_each_task(n, [&](int64_t i) { ++runs[i]; });
        for_each_task_again(
            n, [&](int64_t i) { ++again[i]; },
            [&](int64_t first, int64_t count) {
              EXPECT_GE(first, 0);
              EXPECT_LE(first + count, n);
              return Region{again.data() + first, count * 4};
            });
      });
      for (int64_t i = 0; i < n; ++i)
        ASSERT_EQ(std::pair(runs[i].load(), again[i].load()), std::pair(1, 1)) << i << " of " << n << " on " << threads;
    }
}

TEST(Team, MayBeEnteredAgainAndSharesOutWithinABody) {
  const Threads scope(2);
  std::atomic<int> inner = 0;
  Team::with([&] {
    Team* const outer = Team::current();
    Team::with([&] { EXPECT_EQ(Team::current(), outer); });
    outer->run([&](int64_t) { for_each_task(10, [&](int64_t) { ++inner; }); }, nothing);
    EXPECT_EQ(Team::current(), outer);
  });
  EXPECT_EQ(inner, 20);
}

TEST(Team, GivesErrorsBackAndGoesOn) {
  const Threads scope(2);
  int done = 0;
  Team::with([&] {
    for (const int64_t bad : {0, 1}) {
      EXPECT_THROW(Team::current()->run(
                       [&](int64_t i) {
                         if (i == bad) throw std::runtime_error("bad");
                       },
                       nothing),
                   std::runtime_error);
      std::atomic<int> runs = 0;
      Team::current()->run([&](int64_t) { ++runs; }, nothing);
      EXPECT_EQ(runs, 2);
      ++done;
    }
  });
  EXPECT_EQ(done, 2);
  EXPECT_THROW(Team::with([&] { throw std::runtime_error("head"); }), std::runtime_error);
  EXPECT_EQ(Team::current(), nullptr);
  Team::with([&] { ++done; });
  EXPECT_EQ(done, 3);
}

}  // namespace
}  // namespace lapse
