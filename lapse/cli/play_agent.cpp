#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <memory>

#include "lapse/cli/frame.h"
#include "lapse/cli/play.h"
#include "lapse/cli/terminal.h"

namespace lapse {
namespace {

constexpr int kRows = std::numeric_limits<int>::max();  // where there is no terminal
constexpr int kWidest = 1000;                           // columns of a map that are kept: no terminal has more
constexpr double kFaster = 1.5;

/// An agent's episodes, one step after the other, and back.
class Watch {
 public:
  Watch(Transformer& model, const EnvironmentOptions& environment, const PlayArguments& arguments)
      : model_(model),
        environment_(environment),
        arguments_(arguments),
        shape_(environment.shape()),
        name_(environment.name()),
        labeller_(environment) {
    forget();
  }

  void forward() {
    if (++at_ < std::ssize(recorder_->record.steps)) return;
    maps_.push_back(arguments_.map ? around_agent(recorder_->world().draw(0), kWidest) : "");
    labels_.push_back(labeller_.of(sight_of(shape_, recorder_->step().bits)));
  }
  void back() { at_ = std::max<int64_t>(at_ - 1, 0); }

  std::string frame(int columns, int rows, bool colour) const {
    const std::string map = around_agent(maps_[at_], columns);  // of this moment: a terminal's size may change
    const StepFrame frame{recorder_->record, first_, shape_, labels_, map, columns, rows, colour};
    return name_ + ", " + frame.draw(at_);
  }

  int64_t episodes() const { return recorder_->episodes(); }
  /// Once an episode has ended: there is no way back to it.
  void forget() {
    if (recorder_) first_ = recorder_->episodes();
    recorder_ = std::make_unique<EpisodeRecorder>(model_, environment_, arguments_.episodes.seed,
                                                  arguments_.episodes.greedy, first_);
    labels_.clear(), maps_.clear(), at_ = -1;
  }

 private:
  Transformer& model_;
  const EnvironmentOptions& environment_;
  const PlayArguments& arguments_;
  EnvironmentShape shape_;
  std::string name_;
  SightLabels labeller_;
  int64_t first_ = 0;  // episode that is kept
  std::unique_ptr<EpisodeRecorder> recorder_;
  std::vector<std::string> labels_, maps_;  // of each step
  int64_t at_ = -1;                         // the step that is shown
};

void watch_on_terminal(Watch& watch, double speed) {
  const Terminal terminal;
  watch.forward();
  for (bool playing = false;;) {
    terminal.draw(watch.frame(terminal.size().columns, terminal.frame_rows(), /*colour=*/true),
                  fmt::format("space: step    left: back    p: {}    + -: {:.3g} steps/s    q: leave",
                              playing ? "stop" : "play", speed));
    const std::string key = terminal.key(playing ? static_cast<int>(1000 / speed) : -1);
    if (key == "q" || key == "leave") return;
    if (key == " " || key == "right" || key == "l" || (key.empty() && playing)) watch.forward();
    if (key == "left" || key == "h" || key == "b") watch.back();
    if (key == "p") playing = !playing;
    if (key == "+" || key == "=") speed = std::min(speed * kFaster, 1000.0);
    if (key == "-") speed = std::max(speed / kFaster, 0.1);
  }
}

}  // namespace

int watch_agent(Transformer& model, const EnvironmentOptions& environment, const PlayArguments& arguments) {
  Watch watch(model, environment, arguments);
  if (Terminal::is_there()) return watch_on_terminal(watch, arguments.speed), 0;
  for (int64_t ended = 0; ended < arguments.episodes.episodes && std::cout;) {
    watch.forward();
    std::cout << watch.frame(kColumns, kRows, /*colour=*/false) << std::endl;
    if (watch.episodes() > ended) ended = watch.episodes(), watch.forget();
  }
  return 0;
}

}  // namespace lapse
