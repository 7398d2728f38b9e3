// The environments a second time, straight from their rules: cells are sets of words, nothing is fast, and no code is
// shared with lapse/rl. They take the same draws in the same order (corridor.h, portal.h, t_maze.h).
#pragma once

#include <algorithm>
#include <cmath>

#include "lapse/rl/testing.h"

namespace lapse {

class SlowWorld {
 public:
  virtual ~SlowWorld() = default;
  virtual Sight see() = 0;  ///< called once for each step
  virtual StepResult act(const std::string& action) = 0;
};

using SlowCells = std::map<std::pair<int, int>, std::set<std::string>>;  // row, column -> words

inline Sight slow_window(const SlowCells& cells, int row, int column) {
  Sight sight;
  for (const int down : {-1, 0, 1})
    for (const int right : {-1, 0, 1}) sight.push_back(cells.at({row + down, column + right}));
  return sight;
}

inline std::pair<int, int> slow_move(const std::string& action) {
  return std::map<std::string, std::pair<int, int>>{
      {"up", {-1, 0}}, {"down", {1, 0}}, {"left", {0, -1}}, {"right", {0, 1}}}
      .at(action);
}

class SlowCorridor : public SlowWorld {
 public:
  SlowCorridor(int shortest, int longest, Random random) : shortest_(shortest), longest_(longest), random_(random) {
    build();
  }
  Sight see() override {
    SlowCells cells = cells_;
    cells[{0, column_}].insert("agent");
    return slow_window(cells, 0, column_);
  }
  StepResult act(const std::string& action) override {
    const auto [down, right] = slow_move(action);
    const std::set<std::string> target = cells_.at({down, column_ + right});
    StepResult result;
    if (target.contains("door")) {
      result.reward = result.score = target.contains(object_) ? 1 : 0;
      result.end = true;
    } else if (target.empty()) {
      column_ += right;
    }
    if (--left_ == 0) result.end = true;
    if (result.end) build();
    return result;
  }

 private:
  void build() {
    const std::vector<std::string> colours = {"red", "blue"};
    const int length = shortest_ + static_cast<int>(random_.below(longest_ - shortest_ + 1));
    object_ = colours[random_.below(2)];
    const auto upper = random_.below(2);
    cells_.clear();
    for (int row = -1; row <= 1; ++row)
      for (int column = -1; column <= length; ++column) cells_[{row, column}] = {"block"};
    for (int column = 0; column < length; ++column) cells_[{0, column}] = {};
    cells_[{-1, 0}] = {"object", object_};
    cells_[{-1, length - 1}] = {"door", colours[upper]};
    cells_[{1, length - 1}] = {"door", colours[1 - upper]};
    column_ = 0;
    left_ = 4 * length + 50;
  }

  int shortest_, longest_, column_ = 0, left_ = 0;
  std::string object_;
  SlowCells cells_;
  Random random_;
};

class SlowPortal : public SlowWorld {
 public:
  SlowPortal(int rooms, int most_steps, int mistakes, int colours, Random random)
      : rooms_(rooms), most_steps_(most_steps), most_mistakes_(mistakes), colours_(colours), random_(random) {
    build();
  }
  Sight see() override {
    SlowCells cells = cells_[room_];
    cells[at_].insert("agent");
    cells[at_].insert("room " + std::to_string(room_));
    return slow_window(cells, at_.first, at_.second);
  }
  StepResult act(const std::string& action) override {
    const auto [down, right] = slow_move(action);
    const std::pair<int, int> to = {at_.first + down, at_.second + right};
    const std::set<std::string> target = cells_[room_].at(to);
    StepResult result;
    if (target.contains("door")) {
      at_ = {2, 2};
      if (target.contains(good_[room_])) {
        result.reward = static_cast<float>(0.1 * room_);
        highest_ = std::max(highest_, ++room_);
      } else {
        mistakes_[room_] += 1;
        result.end = mistakes_[room_] >= most_mistakes_;
        room_ = 1;
      }
    } else if (!target.contains("block")) {
      at_ = to;
    }
    steps_ += 1;
    if (steps_ >= most_steps_ || room_ == rooms_) result.end = true;
    if (result.end) {
      result.score = static_cast<float>(highest_);
      build();
    }
    return result;
  }

 private:
  void build() {
    const std::vector<std::string> names = {"red", "blue", "green", "yellow", "purple", "orange", "white", "cyan"};
    cells_.clear(), good_.clear(), mistakes_.clear();
    for (int room = 1; room < rooms_; ++room) {
      SlowCells& cells = cells_[room];
      for (int row = -1; row <= 5; ++row)
        for (int column = -1; column <= 5; ++column) cells[{row, column}] = {"block"};
      for (int row = 0; row < 5; ++row)
        for (int column = 0; column < 5; ++column) cells[{row, column}] = {};
      std::vector<std::string> circle(names.begin(), names.begin() + colours_);
      std::rotate(circle.begin(), circle.begin() + static_cast<int>(random_.below(colours_)), circle.end());
      const std::string left = circle[0], right = circle[1 + random_.below(colours_ - 1)];
      cells[{0, 1}] = {"door", left};
      cells[{0, 3}] = {"door", right};
      good_[room] = random_.below(2) == 0 ? left : right;
    }
    room_ = highest_ = 1;
    steps_ = 0;
    at_ = {2, 2};
  }

  int rooms_, most_steps_, most_mistakes_, colours_, room_ = 1, highest_ = 1, steps_ = 0;
  std::pair<int, int> at_;
  std::map<int, SlowCells> cells_;
  std::map<int, std::string> good_;
  std::map<int, int> mistakes_;
  Random random_;
};

/// With the observation of Ni et al., two numbers, and its translation into words.
class SlowTMaze : public SlowWorld {
 public:
  SlowTMaze(int shortest, int longest, double penalty, Random random)
      : shortest_(shortest), longest_(longest), penalty_(penalty), random_(random) {
    build();
  }
  Sight see() override {
    std::pair<int, int> seen = {0, 0};
    if (x_ == 0 && first_) seen.second = goal_;
    if (x_ == 0) first_ = false;
    if (x_ == length_) seen = {1, y_};
    std::set<std::string> words = {"agent"};
    if (seen.first == 1) words.insert("junction");
    if (seen.first == 0 && seen.second == 1) words.insert("goal up");
    if (seen.first == 0 && seen.second == -1) words.insert("goal down");
    return {words};
  }
  StepResult act(const std::string& action) override {
    t_ += 1;
    const int dx = action == "right"  ? 1
                   : action == "left" ? -1
                                      : 0,
              dy = action == "up"     ? 1
                   : action == "down" ? -1
                                      : 0;
    if (free_.contains({x_ + dx, y_ + dy})) x_ += dx, y_ += dy;
    StepResult result;
    if (t_ == length_ + 1) {
      result = {y_ == goal_ ? 1.0f : 0.0f, true, y_ == goal_ ? 1.0f : 0.0f};
      build();
    } else if (x_ < t_) {
      result.reward = static_cast<float>(-penalty_ / length_);
    }
    return result;
  }

 private:
  void build() {
    length_ = longest_;
    if (shortest_ != 0 && shortest_ != longest_)
      length_ =
          std::min(longest_, static_cast<int>(shortest_ * std::pow((longest_ + 1.0) / shortest_, random_.uniform())));
    free_.clear();
    for (int x = 0; x <= length_; ++x) free_.insert({x, 0});
    free_.insert({length_, 1});
    free_.insert({length_, -1});
    goal_ = random_.below(2) == 1 ? 1 : -1;
    x_ = y_ = t_ = 0;
    first_ = true;
  }

  int shortest_, longest_, length_ = 0, x_ = 0, y_ = 0, t_ = 0, goal_ = 0;
  double penalty_;
  bool first_ = true;
  std::set<std::pair<int, int>> free_;
  Random random_;
};

/// The second implementation of an environment with the same options; nullptr if there is none.
inline std::unique_ptr<SlowWorld> slow_world(const EnvironmentCase& wanted, Random random) {
  std::map<std::string, double> option;
  const auto options = options_of(wanted);
  for (const Field& field : options->fields()) option[field.name] = std::stod(field_to_toml(field));
  const auto number = [&](const char* name) { return static_cast<int>(option.at(name)); };
  if (wanted.name == "corridor") return std::make_unique<SlowCorridor>(number("shortest"), number("longest"), random);
  if (wanted.name == "portal")
    return std::make_unique<SlowPortal>(number("rooms"), number("most_steps"), number("mistakes"), number("colours"),
                                        random);
  if (wanted.name == "t_maze")
    return std::make_unique<SlowTMaze>(number("shortest"), number("length"), option.at("penalty"), random);
  return nullptr;
}

}  // namespace lapse
