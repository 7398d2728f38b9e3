#include "lapse/serve/engine.h"

#include <gtest/gtest.h>

#include "lapse/serve/failure.h"

namespace lapse {
namespace {

class Count : public Job {
 public:
  Count(int64_t& turns, std::function<bool(int64_t)> goes_on, Session::Clock::time_point due)
      : turns_(turns), goes_on_(std::move(goes_on)), due_(due) {}
  bool turn() override { return goes_on_(++turns_); }
  Session::Clock::time_point due() const override { return due_; }

 private:
  int64_t& turns_;
  std::function<bool(int64_t)> goes_on_;
  Session::Clock::time_point due_;
};

TEST(Engine, AJobThatIsNotDueGetsNoTurn) {
  Library library({}, {});
  Engine engine(library);
  int64_t waiting = 0, working = 0;
  const auto on = [](int64_t) { return true; };
  const auto three = [&](int64_t turns) {
    if (turns == 3) engine.stop();
    return turns < 3;
  };
  engine.add(std::make_shared<Count>(waiting, on, Session::Clock::time_point::max()));
  engine.add(std::make_shared<Count>(working, three, Session::Clock::time_point::min()));
  engine.run();
  EXPECT_EQ(waiting, 0);
  EXPECT_EQ(working, 3);
}

TEST(Engine, WhoeverWaitsGetsAnAnswerAlsoWhereItEndsByAnError) {
  Library library({}, {});
  Engine engine(library);
  int64_t turns = 0;
  bool answered = false;
  const auto breaks = [&](int64_t) -> bool {
    engine.post([&] { answered = true; });
    throw std::runtime_error("broken");
  };
  engine.add(std::make_shared<Count>(turns, breaks, Session::Clock::time_point::min()));
  EXPECT_THROW(engine.run(), std::runtime_error);
  EXPECT_TRUE(answered);
  EXPECT_THROW(engine.post([] {}), Failure);
}

}  // namespace
}  // namespace lapse
