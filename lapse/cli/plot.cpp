#include <fmt/format.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "lapse/cli/episode_options.h"
#include "lapse/cli/verbs.h"
#include "lapse/core/error.h"
#include "lapse/core/file.h"
#include "lapse/data/utf8.h"
#include "lapse/train/run_folder.h"

extern char** environ;

namespace lapse {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kCommon =
#include "embedded/lapse/cli/plot.py.inc"
    ;
constexpr const char* kCurves =
#include "embedded/lapse/cli/plot_curves.py.inc"
    ;
constexpr const char* kLosses =
#include "embedded/lapse/cli/plot_losses.py.inc"
    ;
constexpr const char* kMemory =
#include "embedded/lapse/cli/plot_memory.py.inc"
    ;
constexpr const char* kMatrix =
#include "embedded/lapse/cli/plot_matrix.py.inc"
    ;
constexpr const char* kBudgets =
#include "embedded/lapse/cli/plot_budgets.py.inc"
    ;
constexpr const char* kRecord =
#include "embedded/lapse/cli/plot_record.py.inc"
    ;
constexpr int kNoMatplotlib = 3;  // the scripts' exit status

struct Arguments {
  std::vector<std::string> runs, labels;
  std::string out, x = "updates", against, metric, title;
  int64_t smooth = 0;
};

/// A program's exit status, and what it wrote to standard error.
struct Finished {
  int status = 0;
  std::string errors;
};

/// Runs a program of the PATH, or a path, and waits. Its standard output goes where ours goes.
Finished run_program(const std::vector<std::string>& command) {
  std::vector<char*> arguments;
  for (const auto& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  int ends[2];
  if (pipe(ends) != 0) fail(std::string("cannot make a pipe: ") + std::strerror(errno));
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, ends[1], STDERR_FILENO);
  posix_spawn_file_actions_addclose(&files, ends[0]);
  posix_spawn_file_actions_addclose(&files, ends[1]);
  pid_t process = 0;
  const int failed = posix_spawnp(&process, arguments[0], &files, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  close(ends[1]);
  Finished finished;
  std::array<char, 4096> buffer;
  for (ssize_t n; failed == 0 && (n = read(ends[0], buffer.data(), buffer.size())) != 0;) {
    if (n > 0) finished.errors.append(buffer.data(), static_cast<size_t>(n));
    if (n < 0 && errno != EINTR) break;
  }
  close(ends[0]);
  if (failed != 0) fail(command[0] + ": cannot be run (" + std::strerror(failed) + ")");
  int status = 0;
  while (waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  finished.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return finished;
}

/// The .venv of the checkout that this program was built in, as build/PRESET/lapse; empty: there is none.
fs::path own_python() {
  std::error_code ignored;
  const fs::path root = fs::read_symlink("/proc/self/exe", ignored).parent_path() / ".." / "..";
  const fs::path python = (root / ".venv" / "bin" / "python").lexically_normal();
  return fs::exists(root / "lapse" / "cli" / "plot.py", ignored) && fs::exists(python, ignored) ? python : fs::path();
}

/// The interpreter to draw with, and how it was found.
std::pair<std::string, std::string> interpreter() {
  if (const char* chosen = std::getenv("LAPSE_PYTHON"); chosen != nullptr && *chosen != '\0')
    return {chosen, "LAPSE_PYTHON"};
  if (const fs::path own = own_python(); !own.empty()) return {own.string(), "the project's .venv"};
  return {"python3", "of the PATH"};
}

/// A file as it is at a moment; no bytes if there is none.
struct Picture {
  ino_t node = 0;
  off_t bytes = 0;
  int64_t seconds = 0, nanoseconds = 0;

  bool operator==(const Picture&) const = default;
};

Picture picture_at(const fs::path& path) {
  struct stat about;
  if (stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return {};
  return {about.st_ino, about.st_size, about.st_mtim.tv_sec, about.st_mtim.tv_nsec};
}

std::string last_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

/// The metrics of a run, of which there is at least a line.
fs::path metrics_of(const std::string& run) {
  if (!is_there(run)) fail(run + ": no such run");
  const fs::path path = metrics_path(run);
  if (!is_folder(run) || !is_there(path)) fail(run + ": not a run's folder; there is no metrics.jsonl in it");
  if (read_file(path).find('\n') == std::string::npos) fail(path.string() + ": has no line yet; let the run go on");
  return path;
}

/// A file's first characters, which tell what it is, without white space: JSON may have been indented anew.
std::string beginning_of(const std::string& path) {
  std::string text(64, '\0');
  std::ifstream(path, std::ios::binary).read(text.data(), static_cast<std::streamsize>(text.size()));
  std::erase_if(text, [](unsigned char c) { return std::isspace(c); });
  return text;
}

/// The script that draws a file.
const char* kind_of(const std::string& file) {
  for (const auto& [key, script] :
       {std::pair{"{\"matrix\":", kMatrix}, {"{\"settings\":", kBudgets}, {"{\"title\":", kRecord}})
    if (beginning_of(file).starts_with(key)) return script;
  return kLosses;
}

/// The script that draws the runs, or files.
const char* script_of(const Command& verb, const Arguments& arguments) {
  if (!arguments.against.empty()) {
    refuse_given(verb, {"--x", "--smooth"}, "is for curves, and --against draws points");
    return kMemory;
  }
  for (const auto& run : arguments.runs)
    if (!is_there(run)) fail(run + ": no such run or file");
  const auto a_file = std::ranges::find_if(arguments.runs, is_file);
  const auto a_run = std::ranges::find_if_not(arguments.runs, is_file);
  if (a_file != arguments.runs.end() && a_run != arguments.runs.end())
    fail(fmt::format("{} is a run, and {} a file; draw them one by one", *a_run, *a_file));
  if (a_file == arguments.runs.end()) return kCurves;
  const char* script = kind_of(arguments.runs[0]);
  for (const auto& run : arguments.runs)
    if (kind_of(run) != script)
      fail(fmt::format("{} and {} are files of different kinds; draw them one by one", arguments.runs[0], run));
  refuse_given(verb, {"--x"}, "is for runs, and these files are none");
  if (script != kRecord) refuse_given(verb, {"--metric"}, "is for runs and texts, and these files are neither");
  if (script != kLosses) refuse_given(verb, {"--smooth"}, "is for runs and losses, and these files are neither");
  return script;
}

std::string last_folder(const fs::path& path) { return path.parent_path().filename().string(); }

/// A run's folder; where others are called the same, its path as it was given.
std::string label_of_run(const std::string& run, const std::vector<std::string>& all) {
  const auto name = [](const std::string& one) {
    return last_folder(fs::absolute(fs::path(one) / "").lexically_normal());
  };
  const auto same = [&](const std::string& other) { return name(other) == name(run); };
  return std::ranges::count_if(all, same) > 1 ? run : name(run);
}

/// A file's name; where others are called the same, its folder's, which is a run's; or else its path as it was given.
std::string label_of_file(const std::string& path, const std::vector<std::string>& all) {
  const auto folder = [](const std::string& one) { return last_folder(fs::absolute(one).lexically_normal()); };
  const auto named_alike = [&](const std::string& other) { return fs::path(other).stem() == fs::path(path).stem(); };
  const auto beside = [&](const std::string& other) { return named_alike(other) && folder(other) == folder(path); };
  if (std::ranges::count_if(all, named_alike) == 1) return fs::path(path).stem().string();
  return std::ranges::count_if(all, beside) > 1 ? path : folder(path);
}

int run(const Command& verb, const Arguments& arguments) {
  std::string suffix = fs::path(arguments.out).extension().string();
  std::ranges::transform(suffix, suffix.begin(), [](unsigned char c) { return std::tolower(c); });
  if (suffix != ".png" && suffix != ".svg" && suffix != ".pdf")
    fail(arguments.out + ": the picture's name must end in .png, .svg or .pdf");
  if (!arguments.labels.empty() && arguments.labels.size() != arguments.runs.size())
    fail(fmt::format("{} label{} for {} run{}; give --label once for each, in the same order, or not at all",
                     arguments.labels.size(), arguments.labels.size() == 1 ? "" : "s", arguments.runs.size(),
                     arguments.runs.size() == 1 ? "" : "s"));
  const char* script = script_of(verb, arguments);
  Json inputs = Json::array();
  for (size_t i = 0; i < arguments.runs.size(); ++i) {
    const std::string& run = arguments.runs[i];
    const bool reads_file = script != kCurves && is_file(run);
    const fs::path path = reads_file ? fs::path(run) : metrics_of(run);
    require_utf8(path.string(), "the name " + path.string() + ", which the script gets as JSON");
    Json label = reads_file ? label_of_file(run, arguments.runs) : label_of_run(run, arguments.runs);
    if (script == kMemory) label = nullptr;
    if (!arguments.labels.empty()) label = arguments.labels[i];
    inputs.push_back({label, script == kMemory ? run : path.string()});
  }
  const Json settings = {{"inputs", inputs},         {"x", arguments.x},           {"metric", arguments.metric},
                         {"title", arguments.title}, {"smooth", arguments.smooth}, {"out", arguments.out}};
  const auto [python, found] = interpreter();
  const auto before = picture_at(arguments.out);
  const std::string json = settings.dump(-1, ' ', true, Json::error_handler_t::replace);
  const auto finished = run_program({python, "-c", std::string(kCommon) + script, json});
  if (finished.status == kNoMatplotlib)
    fail(python + " (" + found + ") has no matplotlib (" + last_line(finished.errors) +
         "); let LAPSE_PYTHON name an interpreter that has");
  if (finished.status != 0) {
    const std::string reason = last_line(finished.errors);
    fail(reason.empty() ? python + ": ended with status " + std::to_string(finished.status) : reason);
  }
  if (const auto after = picture_at(arguments.out); after.bytes == 0 || after == before)
    fail(arguments.out + ": " + python + " (" + found + ") ended without an error and drew nothing; is it Python?");
  std::cout << arguments.out << '\n';
  return 0;
}

}  // namespace

void add_plot(const Command& program, Action& action) {
  const Command verb = program.add_verb(
      "plot",
      "Draw learning curves and memory sizes of runs, a text shaded by memory, losses along it, matrices, budgets");
  auto arguments = std::make_shared<Arguments>();
  verb.add_option("runs", arguments->runs,
                  "folders of one or more runs; or files of `lapse eval --losses`, of `lapse inspect -o FILE.json`, of "
                  "`lapse inspect --matrix` or "
                  "`lapse prune`")
      .required()
      .type_name("RUN");
  verb.add_option("-o,--out", arguments->out, "the picture to write: .png, .svg or .pdf")
      .required()
      .type_name("PICTURE");
  verb.add_option("--x", arguments->x, "what the curves run over; steps: an agent's, or tokens")
      .check(one_of({"updates", "tokens", "steps", "hours"}))
      .shows_default();
  verb.add_option("--against", arguments->against,
                  "draw each run's last figure against its mean memory size, one curve for each method; a RUN may also "
                  "be a file that `lapse eval --json` printed")
      .check(one_of({"memory"}));
  verb.add_option("--metric", arguments->metric,
                  "which figure of the runs: bpb, loss, ...; of a text: held, or what the method reports of a row, "
                  "such as span; default: the main one")
      .type_name("NAME");
  verb.add_option("--label", arguments->labels,
                  "a run's name in the picture, with --against its curve's; once for each, in the same order")
      .repeats();
  verb.add_option("--title", arguments->title, "of the picture");
  verb.add_option("--smooth", arguments->smooth,
                  "means of so many lines of training, or tokens; 0: of a fiftieth of the curve")
      .check(whole_number(0, 1000000))
      .shows_default();
  verb.footer(
      "Drawn by matplotlib, with the interpreter that LAPSE_PYTHON names, else the project's .venv, else python3.");
  verb.callback([=, &action] {
    verb.refuse_extras();
    action = [=] { return run(verb, *arguments); };
  });
}

}  // namespace lapse
