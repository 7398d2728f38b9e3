// A run's whole configuration: every section of the TOML file.
#pragma once

#include <memory>
#include <vector>

#include "lapse/core/config.h"
#include "lapse/data/config.h"
#include "lapse/forgetting/method.h"
#include "lapse/model/config.h"
#include "lapse/rl/environment.h"
#include "lapse/tasks/task.h"

namespace lapse {

constexpr int64_t kMostUpdates = 99'999'999;  ///< checkpoints' names have eight digits

struct TrainConfig {
  int64_t batch = 16;
  int64_t block = 128;
  int64_t parts = 1;
  int64_t updates = 2000;
  int64_t seed = 1;
  int64_t threads = 0;
  std::string device = "cpu";
  std::string precision = "float32";
  std::string objective = "usual";
  std::string from;
  int64_t log_every = 10;
  int64_t validate_every = 250;
  int64_t validation_blocks = 0;
  int64_t validation_streams = 0;
  int64_t checkpoint_every = 250;
  int64_t keep = 2;

  /// `predicts`: whether the run is scored by what it predicts, block by block, and not by what it does.
  Fields fields(const std::function<bool()>& predicts = {});
  /// Streams or windows that are evaluated at a time.
  int64_t evaluated() const { return validation_streams > 0 ? validation_streams : batch; }
};

struct OptimiserConfig {
  std::string name = "adam";
  double rate = 7e-4;
  int64_t warmup = 200;
  std::string schedule = "constant";
  double clip = 0.3;
  double weight_decay = 0;
  double beta1 = 0.9, beta2 = 0.999;
  double momentum = 0;
  double smoothing = 0.99;
  double epsilon = 1e-8;

  Fields fields(const std::function<bool()>& warms_up = nullptr);
};

/// Of runs in environments (docs/equations.md, "Actor-critic").
struct ActorCriticConfig {
  double discount = 0.99;   // gamma
  double value_loss = 0.5;  // c_v
  double entropy = 0.0005;
  double entropy_last = 1;
  int64_t validation_episodes = 100;

  Fields fields();
};

class Config {
 public:
  Config();
  Config(const Config& other);

  DataConfig data;
  ModelConfig model;
  TrainConfig train;
  OptimiserConfig optimiser;
  ActorCriticConfig actor_critic;
  std::string method_name;
  std::string task_name = "none";

  /// Sections that refer to this object's members, one for each method, task and environment included.
  Sections sections();
  /// As TOML that read_config reads back to the same values.
  std::string to_toml() const;
  /// The same without the sections that nothing depends on.
  std::string used_toml() const;
  /// The chosen method's options.
  MethodOptions& method() { return *methods_[method_index(method_name)]; }
  const MethodOptions& method() const { return *methods_[method_index(method_name)]; }
  /// The chosen task's, or environment's; null if data.task is none.
  const TaskOptions* task() const;
  const EnvironmentOptions* environment() const;
  /// Whether what the run reads is generated: by a task or an environment.
  bool generates() const { return task() || environment(); }
  /// Options of the chosen task or of any method, as this configuration has them, to be changed for reading.
  std::unique_ptr<TaskOptions> copy_task() const;
  std::unique_ptr<MethodOptions> copy_method(const std::string& name) const;
  /// Whether anything depends on this section: those of other methods, tasks and environments stand by.
  bool uses(const std::string& section) const;
  /// Whether sequences are independent windows rather than streams.
  bool windows() const;
  /// A value that is another in `now`.
  struct Difference {
    std::string section, key, was, is;  // values as TOML
    bool is_path;
  };
  static std::vector<Difference> differences(const Config& before, const Config& now);
  /// Error if fields contradict each other. Of a single field core/config.h checks the value.
  void check() const;

 private:
  size_t method_index(const std::string& name) const;
  void check_generated() const, check_environment() const;

  std::vector<std::unique_ptr<MethodOptions>> methods_;
  std::vector<std::unique_ptr<TaskOptions>> tasks_;
  std::vector<std::unique_ptr<EnvironmentOptions>> environments_;
};

/// Config::check, and an Error if this machine cannot train so. A model that was trained elsewhere can still be read
/// here.
void require_trainable_here(const Config& config);

/// Also where no run is resumed: Error for what earlier versions let pass.
void require_new_run(const Config& config);

}  // namespace lapse
