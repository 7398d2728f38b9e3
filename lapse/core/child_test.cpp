#include "lapse/core/child.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <system_error>

namespace lapse {
namespace {

TEST(Child, GivesWhatItMakes) {
  std::string long_one(3 << 20, 'x');  // more than a pipe holds
  long_one[7] = '\0';
  EXPECT_EQ(in_child([&] { return long_one; }), long_one);
  EXPECT_EQ(in_child([] { return std::string(); }), "");
}

TEST(Child, ThrowsWhatItThrows) {
  EXPECT_THROW(in_child([]() -> std::string { throw std::bad_alloc(); }), std::bad_alloc);
  const auto no_thread = std::make_error_code(std::errc::resource_unavailable_try_again);
  EXPECT_THROW(in_child([&]() -> std::string { throw std::system_error(no_thread); }), std::bad_alloc);
  try {
    in_child([]() -> std::string { throw std::runtime_error("no pieces"); });
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "no pieces");
  }
}

TEST(Child, MayEndItsProcess) {
  EXPECT_THROW(in_child([]() -> std::string { std::_Exit(255); }), std::runtime_error);
  EXPECT_THROW(in_child([]() -> std::string { std::_Exit(0); }), std::runtime_error);
  EXPECT_THROW(in_child([]() -> std::string { return std::raise(SIGKILL), ""; }), std::runtime_error);
}

}  // namespace
}  // namespace lapse
