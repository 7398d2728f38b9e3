// What holds of every environment: the rules, read a second time; streams, pieces, saved states.
#include "lapse/rl/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <new>
#include <sstream>
#include <thread>

#include "lapse/core/testing.h"
#include "lapse/rl/slow_testing.h"
#include "lapse/rl/success.h"

// Every allocation of this program is counted, but for the sanitizers, which have allocators of their own.
#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LAPSE_SANITIZED
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LAPSE_SANITIZED
#endif

namespace {
thread_local int64_t allocations = 0;
}

#ifdef LAPSE_SANITIZED
constexpr bool kCounts = false;
#else
constexpr bool kCounts = true;

void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace lapse {
namespace {

constexpr uint64_t kSeed = 11;

/// What one batch saw and earned.
struct Trace {
  std::vector<int32_t> bits;
  std::vector<float> results;

  void add(const StepResult& result) {
    results.insert(results.end(), {result.reward, result.end ? 1.0f : 0.0f, result.score});
  }
  bool operator==(const Trace&) const = default;
};

/// Actions at random, with a favourite for some time: an agent of four equal actions gets nowhere.
class Actions {
 public:
  explicit Actions(uint64_t seed) : random_(seed, "actions") {}

  int32_t next() {
    if (taken_++ % 200 == 0) favourite_ = static_cast<int32_t>(random_.below(4));
    return random_.uniform() < 0.7 ? favourite_ : static_cast<int32_t>(random_.below(4));
  }

 private:
  Random random_;
  int64_t taken_ = 0;
  int32_t favourite_ = 0;
};

/// `steps` steps of all, in pieces [cuts[0], cuts[1]), [cuts[1], cuts[2]), ...; each with a thread of its own if told
/// so.
Trace run(Environments& environments, int64_t steps, const std::vector<int64_t>& cuts, bool threads = false) {
  const int64_t n = environments.size(), words = environments.shape().most_words;
  std::vector<Actions> choose;
  for (int64_t i = 0; i < n; ++i) choose.emplace_back(i);
  std::vector<int32_t> bits(n * words), actions(n);
  std::vector<StepResult> results(n);
  Trace trace;
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t i = 0; i < n; ++i) actions[i] = choose[i].next();
    const auto piece = [&](int64_t first, int64_t count) {
      environments.observe(first, count, bits.data() + first * words);
      environments.step(first, count, actions.data() + first, results.data() + first);
    };
    std::vector<std::jthread> at_work;
    for (size_t k = 0; k + 1 < cuts.size(); ++k) {
      if (threads)
        at_work.emplace_back(piece, cuts[k], cuts[k + 1] - cuts[k]);
      else
        piece(cuts[k], cuts[k + 1] - cuts[k]);
    }
    at_work.clear();
    trace.bits.insert(trace.bits.end(), bits.begin(), bits.end());
    for (const StepResult& result : results) trace.add(result);
  }
  return trace;
}

class EveryEnvironment : public testing::TestWithParam<EnvironmentCase> {
 protected:
  std::unique_ptr<EnvironmentOptions> options_ = options_of(GetParam());

  std::unique_ptr<Environments> make(int64_t count, uint64_t seed = kSeed) const { return options_->make(count, seed); }
  /// The first states of twenty environments.
  std::vector<std::vector<int64_t>> starts(uint64_t seed) const {
    std::vector<std::vector<int64_t>> all;
    for (int64_t i = 0; i < 20; ++i) all.push_back(make(20, seed)->state(i));
    return all;
  }
  Random stream(int64_t i) const { return {kSeed, GetParam().name + "." + std::to_string(i)}; }
};
INSTANTIATE_TEST_SUITE_P(All, EveryEnvironment, testing::ValuesIn(environment_cases()),
                         [](const auto& info) { return info.param.name + "_" + std::to_string(info.index); });

TEST_P(EveryEnvironment, DoesWhatASlowSecondImplementationDoes) {
  const auto environments = make(2);
  const auto slow = slow_world(GetParam(), stream(1));
  ASSERT_NE(slow, nullptr) << "write one, in slow_testing.h";
  Actions choose(3);
  int64_t ends = 0, steps = 0;
  double reward = 0;
  const auto* successes = dynamic_cast<const SuccessOptions*>(options_.get());
  for (int64_t step = 0; step < 10'000; ++step) {
    ASSERT_EQ(sight_of(*environments, 1), slow->see()) << "step " << step;
    const int32_t action = choose.next();
    StepResult result;
    environments->step(1, 1, &action, &result);
    const StepResult expected = slow->act(environments->shape().actions[action]);
    ASSERT_EQ(result.reward, expected.reward) << "step " << step;
    ASSERT_EQ(result.end, expected.end) << "step " << step;
    ASSERT_EQ(result.score, expected.score) << "step " << step;
    ASSERT_LE(result.score, environments->shape().best_score);
    if (result.end) {
      ASSERT_GE(result.score, environments->shape().least_score);
    }
    reward += result.reward;
    if (result.end && successes) {
      ASSERT_TRUE(result.score == 0 || result.score == 1) << "step " << step;
      if (successes->returns_score()) {
        ASSERT_EQ(reward, result.score) << "step " << step;
      }
    }
    if (result.end) reward = 0;
    ASSERT_LE(++steps, environments->shape().most_steps);
    if (result.end) ++ends, steps = 0;
  }
  EXPECT_GE(ends, 5);
}

TEST_P(EveryEnvironment, StepsWithoutAllocation) {
  if (!kCounts) GTEST_SKIP() << "nothing is counted";
  const auto environments = make(4);
  std::vector<int32_t> bits(4 * environments->shape().most_words), actions(4);
  std::vector<StepResult> results(4);
  Actions choose(5);
  int64_t ends = 0;
  const int64_t before = allocations;
  for (int64_t step = 0; step < 3000; ++step) {
    environments->observe(0, 4, bits.data());
    for (auto& action : actions) action = choose.next();
    environments->step(0, 4, actions.data(), results.data());
    ends += results[0].end;
  }
  EXPECT_EQ(allocations, before);
  EXPECT_GT(ends, 0);
  EXPECT_GT((make(1), allocations), before) << "nothing is counted";
}

TEST_P(EveryEnvironment, SaysAtMostAsManyWordsAsItsShapeAndTheyAscend) {
  const auto environments = make(3);
  const EnvironmentShape& shape = environments->shape();
  EXPECT_EQ(std::set(shape.words.begin(), shape.words.end()).size(), shape.words.size());
  const Trace trace = run(*environments, 3000, {0, 3});
  int64_t most = 0;
  for (size_t at = 0; at < trace.bits.size(); at += shape.most_words) {
    const std::vector<int32_t> bits(trace.bits.begin() + at, trace.bits.begin() + at + shape.most_words);
    const auto words = std::ranges::find(bits, -1) - bits.begin();
    most = std::max(most, words);
    for (int64_t k = 0; k < shape.most_words; ++k) {
      if (k >= words) {
        ASSERT_EQ(bits[k], -1);
      } else {
        ASSERT_GT(bits[k], k == 0 ? -1 : bits[k - 1]);
        ASSERT_LT(bits[k], shape.bits());
      }
    }
  }
  EXPECT_LE(most, shape.most_words);
  if (GetParam().settings.empty()) {
    EXPECT_EQ(most, shape.most_words) << "more room than needed";
  }
}

TEST_P(EveryEnvironment, GoesTheSameWayInPiecesAndInThreads) {
  const Trace whole = run(*make(7), 400, {0, 7});
  EXPECT_EQ(run(*make(7), 400, {0, 1, 5, 7}), whole);
  EXPECT_EQ(run(*make(7), 400, {0, 4, 7}, true), whole);
  EXPECT_NE(starts(kSeed), starts(kSeed + 1));
}

TEST_P(EveryEnvironment, DependsOnNothingButItsStreamAndItsActions) {
  const auto many = make(6), one = make(1, kSeed + 5);
  one->begin(0, stream(4));
  Actions choose(9);
  for (int64_t step = 0; step < 2000; ++step) {
    ASSERT_EQ(sight_of(*many, 4), sight_of(*one, 0));
    const int32_t action = choose.next();
    const std::vector<int32_t> actions(6, action);
    std::vector<StepResult> results(6), result(1);
    many->step(0, 6, actions.data(), results.data());
    one->step(0, 1, &action, result.data());
    ASSERT_EQ(results[4].reward, result[0].reward);
    ASSERT_EQ(results[4].end, result[0].end);
  }
  EXPECT_EQ(many->state(4), one->state(0));
}

TEST_P(EveryEnvironment, ContinuesFromASavedState) {
  for (const int64_t before : {0, 1, 7, 333}) {
    const auto whole = make(3), resumed = make(3);
    run(*whole, before, {0, 3});
    for (int64_t i = 0; i < 3; ++i) {
      resumed->set_state(i, whole->state(i));
      EXPECT_EQ(resumed->state(i), whole->state(i));
      EXPECT_EQ(resumed->draw(i), whole->draw(i));
    }
    EXPECT_EQ(run(*resumed, 500, {0, 3}), run(*whole, 500, {0, 3})) << before;
  }
}

TEST_P(EveryEnvironment, RefusesStatesThatCannotBe) {
  const auto environments = make(2), other = make(2);
  const int64_t least = std::numeric_limits<int64_t>::min(), most = std::numeric_limits<int64_t>::max();
  for (const int64_t before : {0, 5, 90}) {
    run(*environments, before, {0, 2});
    const std::vector<int64_t> good = environments->state(1);
    const auto error = [&](const std::vector<int64_t>& state) { return error_of([&] { other->set_state(1, state); }); };
    EXPECT_THAT(error({}), testing::HasSubstr("numbers, not"));
    EXPECT_THAT(error({good.begin(), good.end() - 1}), testing::HasSubstr("numbers, not"));
    std::vector<int64_t> longer = good;
    longer.push_back(0);
    EXPECT_THAT(error(longer), testing::HasSubstr("numbers, not"));
    EXPECT_EQ(error(good), "");
    for (size_t at = 1; at < good.size(); ++at) {
      std::vector<int64_t> bad = good;
      for (const int64_t value : {least, most, -1 + least / 2, int64_t{-1}, good[at] + (int64_t{1} << 32),
                                  good[at] - (int64_t{1} << 32), good[at] + (int64_t{1} << 40)}) {
        bad[at] = value;
        const std::string message = error(bad);
        ASSERT_THAT(message, testing::HasSubstr("environment 1 is none of '" + GetParam().name)) << at << " " << value;
        ASSERT_EQ(message.find('\n'), std::string::npos);
      }
      EXPECT_EQ(other->state(1), good) << "a refused state changes nothing";
    }
  }
}

// Small numbers are often possible: whatever is taken must run on.
TEST_P(EveryEnvironment, RunsFromWhateverStateItTakes) {
  const auto environments = make(1);
  const EnvironmentShape& shape = environments->shape();
  for (const int64_t before : {0, 5, 90}) {
    run(*environments, before, {0, 1});
    const std::vector<int64_t> good = environments->state(0);
    int64_t taken = 0;
    for (size_t at = 0; at < std::min<size_t>(good.size(), 40); ++at) {
      for (const int64_t value : {int64_t{-3}, int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4}, int64_t{5},
                                  int64_t{49}, int64_t{200}, good[at] - 1, good[at] + 1, good[at] + 256}) {
        std::vector<int64_t> state = good;
        state[at] = value;
        const auto fresh = make(1);
        if (!error_of([&] { fresh->set_state(0, state); }).empty()) continue;
        ++taken;
        EXPECT_EQ(fresh->state(0), state);
        EXPECT_FALSE(fresh->draw(0).empty());
        for (const int32_t bit : run(*fresh, 70, {0, 1}).bits) ASSERT_TRUE(bit >= -1 && bit < shape.bits());
      }
    }
    EXPECT_GT(taken, 0);
  }
}

TEST_P(EveryEnvironment, DrawsLinesOfEqualWidth) {
  const auto environments = make(1);
  for (int64_t step = 0; step < 50; ++step) {
    run(*environments, 1, {0, 1});
    std::istringstream map(environments->draw(0));
    std::set<size_t> widths;
    for (std::string line; std::getline(map, line);) widths.insert(line.size());
    ASSERT_EQ(widths.size(), 1u) << environments->draw(0);
    ASSERT_NE(environments->draw(0).find('@'), std::string::npos);
  }
  EXPECT_THAT(environments->legend(), testing::HasSubstr("@ agent"));
}

TEST(EnvironmentTable, NamesAreThoseOfTheOptions) {
  for (const auto& entry : environment_table()) {
    const auto options = entry.options();
    EXPECT_EQ(options->name(), entry.name);
    EXPECT_EQ(error_of([&] { options->check(); }), "");
    EXPECT_EQ(options->make(0, 1)->size(), 0);
    EXPECT_EQ(options->make(5, 1)->size(), 5);
    EXPECT_EQ(options->make(5, 1)->shape().words, options->shape().words);
    for (const auto& action : options->shape().actions)  // `lapse play` reads words
      EXPECT_TRUE(!action.empty() && action.find_first_of(" \t\n") == action.npos) << action;
  }
}

TEST(EnvironmentTable, AbsurdOptionsAreRefused) {
  const auto error = [](const std::string& name, const std::string& key, const std::string& value) {
    return error_of([&] { options_of({name, {{key, value}}})->check(); });
  };
  EXPECT_THAT(error("corridor", "longest", "1000000000000"), testing::HasSubstr("longest"));
  EXPECT_THAT(error("corridor", "shortest", "2"), testing::HasSubstr("shortest"));
  EXPECT_THAT(error("corridor", "shortest", "201"), testing::HasSubstr("corridor.longest = 200"));
  EXPECT_THAT(error("portal", "rooms", "1"), testing::HasSubstr("rooms"));
  EXPECT_THAT(error("portal", "rooms", "201"), testing::HasSubstr("rooms"));
  EXPECT_THAT(error("portal", "colours", "9"), testing::HasSubstr("colours"));
  EXPECT_THAT(error("portal", "mistakes", "256"), testing::HasSubstr("mistakes"));
  EXPECT_THAT(error("portal", "most_steps", "0"), testing::HasSubstr("most_steps"));
  EXPECT_THAT(error("t_maze", "length", "0"), testing::HasSubstr("length"));
  EXPECT_THAT(error("t_maze", "length", "100001"), testing::HasSubstr("length"));
  EXPECT_THAT(error("t_maze", "penalty", "-1"), testing::HasSubstr("penalty"));
  EXPECT_THAT(error("t_maze", "shortest", "101"), testing::HasSubstr("t_maze.length = 100"));
}

}  // namespace
}  // namespace lapse
