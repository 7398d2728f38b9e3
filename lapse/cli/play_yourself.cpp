#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iomanip>
#include <iostream>
#include <map>

#include "lapse/cli/frame.h"
#include "lapse/cli/play.h"
#include "lapse/cli/terminal.h"
#include "lapse/core/error.h"

namespace lapse {
namespace {

const std::map<std::string, std::string> kLetters = {{"h", "left"}, {"j", "down"}, {"k", "up"}, {"l", "right"}};

/// A person in the episodes of a seed.
class Game {
 public:
  Game(const EnvironmentOptions& environment, const PlayArguments& arguments)
      : environment_(environment),
        arguments_(arguments),
        shape_(environment.shape()),
        world_(environment.make(1, arguments.episodes.seed)) {
    begin();
  }

  /// What a key or word asks for; false: nothing that is known.
  bool act(const std::string& key) {
    if (key == "r") return begin(), true;
    const auto letter = kLetters.find(key);
    const auto named = std::ranges::find(shape_.actions, letter == kLetters.end() ? key : letter->second);
    if (named == shape_.actions.end()) return false;
    const auto action = static_cast<int32_t>(named - shape_.actions.begin());
    world_->step(0, 1, &action, &last_);
    ++steps_, return_ += last_.reward;
    note_ = fmt::format("  {}: reward {:g}\n", *named, last_.reward);
    if (!last_.end) return true;
    const std::string ended = fmt::format("{}  episode {} ended: {} {:g}, return {:g}, {} steps; the next one begins\n",
                                          note_, episode_, shape_.score, last_.score, return_, steps_);
    scores_ += last_.score, ++episode_;
    begin();
    note_ = ended;
    return true;
  }

  std::string frame(int columns, bool colour) const {
    std::vector<int32_t> bits(shape_.most_words);
    world_->observe(0, 1, bits.data());
    std::string text = fmt::format("{}, episode {}, step {}\n\n{}\n", environment_.name(), episode_, steps_,
                                   draw_sight(sight_of(shape_, bits), colour));
    if (arguments_.map) text += fmt::format("{}  {}\n\n", around_agent(world_->draw(0), columns), world_->legend());
    text += fmt::format("{}  return {:g}", note_, return_);
    if (episode_ > 0) text += fmt::format("; {} {:.4g} on average", shape_.score, scores_ / episode_);
    return text + '\n';
  }

  std::vector<std::string> keys() const {
    auto all = shape_.actions;
    for (const auto& [letter, name] : kLetters) all.push_back(letter);
    all.insert(all.end(), {"r", "q"});
    return all;
  }

 private:
  void begin() {
    world_->begin(0, episode_draws(environment_, arguments_.episodes.seed, episode_).world);
    steps_ = 0, return_ = 0, note_.clear();
  }

  const EnvironmentOptions& environment_;
  const PlayArguments& arguments_;
  EnvironmentShape shape_;
  std::unique_ptr<Environments> world_;
  StepResult last_;
  int64_t episode_ = 0, steps_ = 0;
  double return_ = 0, scores_ = 0;
  std::string note_;  // on the last step
};

void play_on_terminal(Game& game) {
  const Terminal terminal;
  for (std::string key; key != "q" && key != "leave"; key = terminal.key(-1)) {
    game.act(key);
    terminal.draw(game.frame(terminal.size().columns, /*colour=*/true),
                  "arrow keys or h j k l: move    r: begin the episode anew    q: leave");
  }
}

/// A word's keys: itself, or its letters.
std::vector<std::string> keys_of(const std::string& word, const std::vector<std::string>& known) {
  if (std::ranges::count(known, word) > 0) return {word};
  std::vector<std::string> keys;
  for (const char letter : word) {
    keys.push_back({letter});
    if (std::ranges::count(known, keys.back()) == 0)
      fail(fmt::format("there is no action '{}'{}; the environment has: {}", word, did_you_mean(word, known),
                       fmt::join(known, ", ")));
  }
  return keys;
}

constexpr int kLongestWord = 1024;  // longer ones, such as letters without end, come in parts

void play_by_words(Game& game) {
  std::cout << game.frame(kColumns, /*colour=*/false) << std::flush;
  for (std::string word; std::cin >> std::setw(kLongestWord) >> word;)
    for (const auto& key : keys_of(word, game.keys())) {
      if (key == "q") return;
      game.act(key);
      std::cout << '\n' << game.frame(kColumns, /*colour=*/false) << std::flush;
    }
}

}  // namespace

int play_yourself(const EnvironmentOptions& environment, const PlayArguments& arguments) {
  Game game(environment, arguments);
  if (Terminal::is_there())
    play_on_terminal(game);
  else
    play_by_words(game);
  return 0;
}

}  // namespace lapse
