#include "lapse/train/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "lapse/core/testing.h"
#include "lapse/ops/second_device_testing.h"

namespace lapse {
namespace {

TEST(Device, IsFoundByName) {
  EXPECT_TRUE(find_device("cpu").is_cpu());
  EXPECT_EQ(find_device("second"), second_device());
  EXPECT_EQ(find_device("second:0"), second_device());
}

TEST(Device, EachProcessOfAMachineHasOneAsFarAsTheyGo) {
  setenv("LOCAL_RANK", "3", 1);  // and there is one
  EXPECT_EQ(find_device("second"), second_device());
  EXPECT_TRUE(find_device("cpu").is_cpu());
  unsetenv("LOCAL_RANK");
}

TEST(Device, ThatIsNotThereIsNamedWithThoseThatAre) {
  for (const char* name : {"second:1", "cuda:99", "cuda:", "gpu", "CPU", "cpu:0", "meta", ""})
    EXPECT_THAT(error_of([&] { find_device(name); }),
                testing::AllOf(testing::HasSubstr(std::string("\"") + name + "\""), testing::HasSubstr("use cpu or "),
                               testing::HasSubstr("second:0")));
}

TEST(Device, WhereNothingIsCountedHasNoPeak) {
  EXPECT_EQ(peak_memory_on(at::kCPU), 0);
  EXPECT_EQ(peak_memory_on(second_device()), 0);
}

}  // namespace
}  // namespace lapse
