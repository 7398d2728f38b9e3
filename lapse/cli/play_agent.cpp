#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <limits>

#include "lapse/cli/frame.h"
#include "lapse/cli/play.h"
#include "lapse/cli/terminal.h"

namespace lapse {
namespace {

constexpr int kColumns = 100, kRows = std::numeric_limits<int>::max();  // where there is no terminal
constexpr double kFaster = 1.5;

/// An agent's episodes, one step after the other, and back.
class Watch {
 public:
  Watch(Transformer& model, const EnvironmentOptions& environment, const PlayArguments& arguments)
      : arguments_(arguments),
        shape_(environment.shape()),
        name_(environment.name()),
        labeller_(environment),
        recorder_(model, environment, arguments.episodes.seed, arguments.episodes.greedy) {}

  void forward(int columns) {
    if (++at_ < std::ssize(recorder_.record.steps)) return;
    maps_.push_back(arguments_.map ? around_agent(recorder_.world().draw(0), columns) : "");
    labels_.push_back(labeller_.of(sight_of(shape_, recorder_.step().bits)));
  }
  void back() { at_ = std::max<int64_t>(at_ - 1, 0); }

  std::string frame(int columns, int rows, bool colour) const {
    const StepFrame frame{recorder_.record, shape_, labels_, maps_[at_], columns, rows, colour};
    return name_ + ", " + frame.draw(at_);
  }

  int64_t episodes() const { return recorder_.episodes(); }

 private:
  const PlayArguments& arguments_;
  EnvironmentShape shape_;
  std::string name_;
  SightLabels labeller_;
  EpisodeRecorder recorder_;
  std::vector<std::string> labels_, maps_;  // of each step
  int64_t at_ = -1;                         // the step that is shown
};

void watch_on_terminal(Watch& watch, double speed) {
  const Terminal terminal;
  watch.forward(terminal.size().columns);
  for (bool playing = false;;) {
    const int columns = terminal.size().columns;
    terminal.draw(watch.frame(columns, terminal.frame_rows(), /*colour=*/true),
                  fmt::format("space: step    left: back    p: {}    + -: {:.3g} steps/s    q: leave",
                              playing ? "stop" : "play", speed));
    const std::string key = terminal.key(playing ? static_cast<int>(1000 / speed) : -1);
    if (key == "q" || key == "leave") return;
    if (key == " " || key == "right" || key == "l" || (key.empty() && playing)) watch.forward(columns);
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
  while (watch.episodes() < arguments.episodes.episodes && std::cout) {
    watch.forward(kColumns);
    std::cout << watch.frame(kColumns, kRows, /*colour=*/false) << std::endl;
  }
  return 0;
}

}  // namespace lapse
