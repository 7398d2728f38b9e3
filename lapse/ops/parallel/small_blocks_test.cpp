// Blocks of memory come back to the next tensor of their size, and never to two at once.
#include "lapse/ops/parallel/small_blocks.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstring>
#include <set>
#include <thread>
#include <vector>

namespace lapse {
namespace {

TEST(SmallBlocks, AreAlignedDisjointAndUsedAgain) {
  std::set<void*> first;
  for (const bool again : {false, true}) {
    std::vector<std::pair<c10::DataPtr, size_t>> all;
    for (const size_t bytes : {0, 1, 63, 64, 65, 128, 129, 1000, 4096, 16384, 16385, 262144, 262145})
      for (int i = 0; i < 3; ++i) {
        all.emplace_back(small_blocks()->allocate(bytes), bytes);
        if (bytes == 0) continue;
        void* data = all.back().first.get();
        EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u) << bytes;
        std::memset(data, static_cast<int>(all.size()), bytes);  // the sanitized build sees what is too short
        EXPECT_TRUE(!again || bytes > 262144 || first.count(data)) << bytes;
        first.insert(data);
      }
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t at = 0; at < all[i].second; ++at)
        ASSERT_EQ(static_cast<unsigned char*>(all[i].first.get())[at], i + 1) << "written by another block";
  }
}

TEST(SmallBlocks, MayBeReleasedByAnotherThread) {
  c10::DataPtr block = small_blocks()->allocate(200);
  std::thread([other = std::move(block)]() mutable { other.clear(); }).join();
  EXPECT_NE(small_blocks()->allocate(200).get(), nullptr);
}

TEST(SmallBlocks, OfAThreadThatEndsAreFreed) {
  const auto allocated = [] {
    const struct mallinfo2 all = mallinfo2();
    return all.uordblks + all.hblkhd;
  };
  const auto thread = [] {
    std::vector<c10::DataPtr> all;
    for (int i = 0; i < 8; ++i) all.push_back(small_blocks()->allocate(100'000));
  };
  std::thread(thread).join();  // what the first thread makes stays
  const size_t before = allocated();
  for (int i = 0; i < 50; ++i) std::thread(thread).join();
  EXPECT_LT(allocated(), before + (4 << 20)) << "50 threads kept 1 MiB each";
}

TEST(SmallBlocks, MayOutliveTheirThread) {
  c10::DataPtr block;
  std::thread([&] { block = small_blocks()->allocate(200); }).join();
  std::memset(block.get(), 1, 200);
}

}  // namespace
}  // namespace lapse
