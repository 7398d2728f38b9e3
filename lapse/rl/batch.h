// Environments made of one small world after the other in memory: what a new kind of world has to bring is one struct.
//
//   struct World {
//     struct Rules {...};                                     // the options, the same for every world of a batch
//     void begin(const Rules&, Random&);                      // the only place that draws
//     StepResult step(const Rules&, int32_t action);          // where it says `end`, begin follows at once
//     void observe(const Rules&, WordWriter&) const;          // at most shape.most_words words, in ascending order
//     template <class V> void visit(const Rules&, V&& value); // value(what, number, low, high) for each number;
//                                                             // bounds may depend on numbers visited before
//     std::string draw(const Rules&) const;
//     static std::string legend(const Rules&);
//   };
#pragma once

#include <algorithm>
#include <bit>

#include "lapse/core/error.h"
#include "lapse/rl/environment.h"

namespace lapse {

/// Writes the words of an observation, by ascending cell and word.
class WordWriter {
 public:
  WordWriter(int32_t* bits, int32_t words) : next_(bits), words_(words) {}

  void write(int32_t cell, int32_t word) { *next_++ = cell * words_ + word; }
  int32_t* next() const { return next_; }

 private:
  int32_t* next_;
  int32_t words_;
};

template <class World>
class WorldBatch : public Environments {
 public:
  using Rules = typename World::Rules;

  WorldBatch(const EnvironmentOptions& options, const Rules& rules, int64_t count, uint64_t seed)
      : name_(options.name()), shape_(options.shape()), rules_(rules) {
    slots_.reserve(count);
    for (int64_t i = 0; i < count; ++i) {
      slots_.push_back({Random(seed, name_ + "." + std::to_string(i)), {}});
      slots_.back().begin(rules_);
    }
  }

  int64_t size() const override { return std::ssize(slots_); }
  const EnvironmentShape& shape() const override { return shape_; }

  void begin(int64_t i, const Random& random) override {
    slots_[i].random = random;
    slots_[i].begin(rules_);
  }

  void observe(int64_t first, int64_t count, int32_t* bits) const override {
    const auto words = static_cast<int32_t>(shape_.words.size());
    for (int64_t i = first; i < first + count; ++i, bits += shape_.most_words) {
      WordWriter writer(bits, words);
      slots_[i].world.observe(rules_, writer);
      std::fill(writer.next(), bits + shape_.most_words, -1);
    }
  }

  void step(int64_t first, int64_t count, const int32_t* actions, StepResult* results) override {
    for (int64_t n = 0; n < count; ++n) {
      Slot& slot = slots_[first + n];
      results[n] = slot.world.step(rules_, actions[n]);
      if (results[n].end) slot.begin(rules_);
    }
  }

  std::vector<int64_t> state(int64_t i) const override {
    std::vector<int64_t> state = {std::bit_cast<int64_t>(slots_[i].random.counter())};
    World world = slots_[i].world;
    world.visit(rules_, [&](const char*, auto& number, int64_t, int64_t) { state.push_back(number); });
    return state;
  }

  void set_state(int64_t i, const std::vector<int64_t>& state) override {
    World world{};
    size_t used = 1;  // the counter, which may be any number
    world.visit(rules_, [&](const char* what, auto& number, int64_t low, int64_t high) {
      if (used < state.size() && (state[used] < low || state[used] > high))
        refuse(i, std::string(what) + " is " + std::to_string(state[used]) + ", not " + std::to_string(low) + " to " +
                      std::to_string(high));
      number = static_cast<std::remove_reference_t<decltype(number)>>(used < state.size() ? state[used] : low);
      ++used;
    });
    if (used != state.size())
      refuse(i, "it has " + std::to_string(state.size()) + " numbers, not " + std::to_string(used));
    slots_[i].world = world;
    slots_[i].random.set_counter(std::bit_cast<uint64_t>(state[0]));
  }

  std::string draw(int64_t i) const override { return slots_[i].world.draw(rules_); }
  std::string legend() const override { return World::legend(rules_); }

 private:
  struct Slot {
    Random random;
    World world;

    void begin(const Rules& rules) { world.begin(rules, random); }
  };

  [[noreturn]] void refuse(int64_t i, const std::string& why) const {
    fail("the saved state of environment " + std::to_string(i) + " is none of '" + name_ + "' with these options: " +
         why + "; use the options that the checkpoint was made with, or an undamaged checkpoint");
  }

  std::string name_;
  EnvironmentShape shape_;
  Rules rules_;
  std::vector<Slot> slots_;
};

}  // namespace lapse
