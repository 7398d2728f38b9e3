#include "lapse/serve/session.h"

#include <gtest/gtest.h>

#include "lapse/core/error.h"
#include "lapse/core/random.h"

namespace lapse {
namespace {

/// Each step depends on all before it, so a state that is restored wrongly shows for ever.
class Chain : public Subject {
 public:
  struct Saved : State {
    Saved(uint64_t value, int64_t time) : value(value), time(time) {}
    uint64_t value;
    int64_t time;
  };

  int64_t time() const override { return time_; }
  bool given() const override { return time_ < given_; }
  std::function<std::string()> step() override {
    value = mix64(value + 1);
    if (time_ == fails_at) fail("memory is short");  // half a step is done
    ++steps;
    return [t = time_++] { return Json{{"t", t}}.dump(); };
  }
  std::shared_ptr<const State> save() const override { return std::make_shared<Saved>(value, time_); }
  void restore(const State& state) override {
    const auto& saved = dynamic_cast<const Saved&>(state);
    value = saved.value, time_ = saved.time;
  }
  void forget_after(int64_t time) override { given_ = std::min(given_, time); }
  void forget_before(int64_t time) override { forgotten = time; }
  Json describe() const override { return Json::object(); }
  Json told() const override { return {}; }
  Json row(int64_t, const State& before) override { return {{"before", dynamic_cast<const Saved&>(before).time}}; }
  void give(int64_t count) { given_ = std::max(given_, time_) + count; }

  uint64_t value = 0;
  int64_t steps = 0, forgotten = 0, fails_at = -1;

 private:
  int64_t time_ = 0, given_ = 0;
};

uint64_t value_at(int64_t time) {
  uint64_t value = 0;
  for (int64_t i = 0; i < time; ++i) value = mix64(value + 1);
  return value;
}

struct Watched {
  Watched() {
    auto made = std::make_unique<Chain>();
    chain = made.get();
    session = std::make_unique<Session>("id", std::move(made));
  }
  void run() {
    while (session->due() <= Session::Clock::now()) session->turn();
    std::string text;
    session->outbox->take(text);
    said += text;
  }
  /// Without waiting for the events.
  void run_for(int64_t steps) {
    session->play(steps, 0);
    while (session->due() != Session::Clock::time_point::max()) {
      session->turn();
      if (std::string text; session->outbox->full()) session->outbox->take(text);
    }
  }
  Chain* chain;
  std::unique_ptr<Session> session;
  std::string said;
};

// A step that fails may have been taken by one lane and not by another.
TEST(Session, AStepThatFailsLeavesNoTrace) {
  for (const bool by_hand : {false, true}) {
    Watched w;
    w.chain->give(150);
    w.session->read();
    w.chain->fails_at = 100;
    EXPECT_THROW(
        for (;;) {
          if (by_hand && w.chain->time() == 100) w.session->step();
          w.session->turn();
        },
        Error);
    if (!by_hand) w.session->fail_with("memory is short");  // as the engine does
    EXPECT_EQ(w.session->time(), 100);
    w.chain->fails_at = -1;
    w.run();
    EXPECT_EQ(w.chain->time(), 100) << "steps that were taken are taken again, and no more";
    EXPECT_EQ(w.chain->value, value_at(100));
    w.session->read();
    w.run();
    EXPECT_EQ(w.chain->time(), 150);
    EXPECT_EQ(w.chain->value, value_at(150));
  }
}

TEST(Session, WhatFailsAgainEndsInAWholeState) {
  Watched w;
  w.run_for(3000);
  w.session->undo(2999);
  const int64_t whole = w.chain->time();
  ASSERT_LT(whole, 2999);
  w.chain->fails_at = whole + 1;
  w.session->turn();
  EXPECT_THROW(w.session->turn(), Error);
  w.session->fail_with("memory is short");  // as the engine does
  EXPECT_EQ(w.session->due(), Session::Clock::time_point::max());
  EXPECT_EQ(w.chain->time(), whole);
  w.chain->fails_at = -1;
  w.session->play(5, 0);
  w.run();
  EXPECT_EQ(w.chain->time(), whole + 5);
  EXPECT_EQ(w.chain->value, value_at(whole + 5));
  EXPECT_NE(w.said.find("memory is short"), std::string::npos);
}

// A page takes back what it said with the next state: why reading stopped must come after that.
TEST(Session, AFailureIsSaidLast) {
  Watched w;
  w.session->play(0, 0);
  w.session->turn();
  w.session->fail_with("memory is short");
  w.run();
  EXPECT_GT(w.said.rfind("event: failed"), w.said.rfind("event: state")) << w.said;
}

// After a step that throws, those since the newest state are taken again, with states of their own at the end.
TEST(Session, AFailureIsSaidLastAfterStepsAreTakenAgain) {
  for (const bool by_hand : {false, true}) {
    Watched w;
    w.chain->fails_at = 100;
    w.session->play(0, 0);
    while (w.chain->time() < 100) w.session->turn();
    try {
      by_hand ? w.session->step() : w.session->turn();
      FAIL();
    } catch (const Error& error) {
      if (!by_hand) w.session->fail_with(error.what());  // as the engine does
    }
    EXPECT_THROW(w.session->step(), Error) << "steps are taken again";
    w.run();
    const auto state = w.said.rfind("event: state"), failed = w.said.rfind("event: failed");
    ASSERT_NE(failed, std::string::npos);
    EXPECT_GT(failed, state) << w.said;
    for (auto at = w.said.find("event: failed"); at != std::string::npos; at = w.said.find("event: failed", at + 1)) {
      const auto said = w.said.rfind("\"time\":", at);
      EXPECT_EQ(w.said.substr(said, 10), "\"time\":100") << w.said;
    }
    w.said.clear();
    w.chain->fails_at = -1;
    w.session->play(1, 0);
    w.run();
    EXPECT_EQ(w.said.find("event: failed"), std::string::npos) << w.said;
  }
}

TEST(Session, GoesBackToEveryEarlierTime) {
  for (const int64_t to : {0, 1, 63, 64, 65, 1023, 1024, 1025, 10000, 25000, 29990, 29999, 30000}) {
    Watched w;
    w.run_for(30000);
    ASSERT_EQ(w.chain->time(), 30000);
    w.chain->steps = 0;
    w.session->undo(to);
    w.run();
    EXPECT_EQ(w.chain->time(), to);
    EXPECT_EQ(w.chain->value, value_at(to));
    EXPECT_LE(w.chain->steps, Snapshots::kMost + (30000 - to) / 3) << "steps that were taken once more";
    w.session->step();
    EXPECT_EQ(w.chain->value, value_at(to + 1));
  }
}

TEST(Session, GoesBackAgainBeforeItHasArrived) {
  Watched w;
  w.run_for(2000);
  w.session->undo(1990);
  w.session->undo(w.chain->time() - 1);
  const int64_t to = w.chain->time();
  w.run();
  EXPECT_LE(w.chain->time(), 1990);
  EXPECT_EQ(w.chain->value, value_at(w.chain->time()));
  EXPECT_GE(w.chain->time(), to);
}

// An undo on its way counts as done: what is given meanwhile comes after it, and the next undo begins there.
TEST(Session, TakesWhatIsGivenWhileAnUndoIsOnItsWay) {
  Watched w;
  w.run_for(2000);
  w.session->undo(1990);
  ASSERT_LT(w.chain->time(), 1990);
  EXPECT_THROW(w.session->require_settled(), Error);
  EXPECT_THROW(w.session->undo(1991), Error);
  w.session->undo(1980);
  w.chain->give(1985 - w.chain->time());
  w.session->read();
  w.run();
  EXPECT_EQ(w.chain->time(), 1985);
  EXPECT_EQ(w.chain->value, value_at(1985));
  w.session->require_settled();
}

TEST(Session, KeepsFewStates) {
  Chain chain;
  Snapshots snapshots;
  for (int64_t t = 0; t < 200'000; ++t) {
    snapshots.add(chain);
    chain.step();
    if (t % 1024 == 0) snapshots.forget_before(chain.time(), 1 << 30);
  }
  EXPECT_LT(snapshots.size(), 100u);
  EXPECT_EQ(snapshots.before(Snapshots::kMost - 1).time, 0);
  for (int64_t t = 0; t < 200'000; t += 777) {
    EXPECT_LE(snapshots.before(t).time, t);
    EXPECT_LE(t - snapshots.before(t).time, Snapshots::kMost + (200'000 - t) / 3);
  }
  EXPECT_GE(snapshots.forget_before(200'000, 4096), 194'000);
  EXPECT_THROW(snapshots.before(100), Error);
}

TEST(Session, StatesOfSlowStepsAreCloser) {
  Chain chain;
  Snapshots snapshots;
  for (int64_t t = 0; t < 1000; ++t) {
    snapshots.add(chain, std::chrono::milliseconds(10));
    chain.step();
  }
  EXPECT_GT(snapshots.before(999).time, 999 - 65) << "an undo takes no longer than that many steps did";
}

TEST(Session, ForgetsWhatCanNoLongerBeUndone) {
  Watched w;
  w.run_for(3 * Session::kKept);
  EXPECT_GT(w.chain->forgotten, Session::kKept);
  EXPECT_LE(w.chain->forgotten, 2 * Session::kKept);
  EXPECT_THROW(w.session->undo(10), Error);
  w.session->undo(2 * Session::kKept);
  w.run();
  EXPECT_EQ(w.chain->value, value_at(2 * Session::kKept));
}

TEST(Session, ReadsWhatWasGivenAndStops) {
  Watched w;
  w.chain->give(5);
  w.session->read();
  w.run();
  EXPECT_EQ(w.chain->time(), 5);
  w.chain->give(3);
  w.session->play(2, 0);  // what was given does not count
  w.run();
  EXPECT_EQ(w.chain->time(), 10);
  EXPECT_NE(w.said.find("event: steps\ndata: [{\"t\":0}"), std::string::npos);
  EXPECT_NE(w.said.find("\"playing\":false"), std::string::npos);
}

TEST(Session, KeepsToItsSpeed) {
  Watched w;
  const auto begin = Session::Clock::now();
  w.session->play(0, 200);
  while (w.chain->time() < 40) {
    if (w.session->due() <= Session::Clock::now()) w.session->turn();
  }
  const double seconds = std::chrono::duration<double>(Session::Clock::now() - begin).count();
  EXPECT_GE(seconds, 0.9 * 39 / 200.0 - 0.1);  // up to 100 ms may be caught up with
}

TEST(Session, WaitsForASlowReader) {
  Watched w;
  w.session->play(0, 0);
  for (int64_t i = 0; i < 1'000'000; ++i) w.session->turn();
  EXPECT_TRUE(w.session->outbox->full());
  EXPECT_LT(w.chain->time(), 100'000) << "events wait in bounded memory";
  std::string text;
  w.session->outbox->take(text);
  EXPECT_LT(text.size(), 2 * TextBox::kMost);
  EXPECT_FALSE(w.session->outbox->full());
}

TEST(Session, RefusesWhatLiesAhead) {
  Watched w;
  w.run_for(10);
  EXPECT_THROW(w.session->undo(11), Error);
  EXPECT_THROW(w.session->row(10), Error);
  EXPECT_EQ(w.session->row(3)["before"], 0);
}

}  // namespace
}  // namespace lapse
