#include "lapse/train/config.h"

#include <fmt/format.h>

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/data/utf8.h"
#include "lapse/forgetting/budgets.h"
#include "lapse/forgetting/registry.h"
#include "lapse/ops/dense/linear.h"
#include "lapse/rl/registry.h"
#include "lapse/tasks/registry.h"
#include "lapse/train/device.h"
#include "lapse/train/objectives.h"

namespace lapse {

Fields TrainConfig::fields(const std::function<bool()>& predicts) {
  constexpr double kMany = kMostUpdates;
  std::vector<std::string> objectives = {"usual"};
  std::string what =
      "what an update minimises. usual: the one that fits what the run reads (text, task or environment)";
  for (const auto& entry : objective_table())
    objectives.push_back(entry.name), what += fmt::format("; {}: {}", entry.name, entry.help);
  return {
      field("batch", batch, "parallel streams of text").in(1, 1 << 20).unit("streams"),
      field("block", block, "K: timesteps processed at once, and back-propagated through")
          .in(1, 1 << 20)
          .unit("timesteps"),
      field("parts", parts,
            "process the streams of a batch in this many parts, accumulating gradients: less memory at a "
            "time, the same update")
          .in(1, 1 << 20),
      field("updates", updates, "length of the run").in(1, kMany).unit("updates"),
      field("seed", seed, "of all randomness").in(0, 9e15),
      field("threads", threads, "cores to use; 0: all").in(0, 4096),
      field("device", device, "what the model computes on: cpu, or where libtorch has it cuda or cuda:N"),
      field("precision", precision,
            "bf16: products of the training step in bfloat16 with float32 sums; weights, gradients, moments and "
            "evaluation stay float32. On a CPU: with AVX-512 BF16")
          .one_of({"float32", "bf16"}),
      field("objective", objective, what).one_of(objectives),
      field("from", from,
            "fine-tune: begin with the weights and optimiser moments of this run or checkpoint, without "
            "warm-up, memory restarted")
          .path(),
      field("log_every", log_every, "a line of metrics").in(1, kMany).unit("updates"),
      field("validate_every", validate_every, "0: never").in(0, kMany).unit("updates"),
      field("validation_blocks", validation_blocks,
            "at most so many blocks of the validation text; 0: all whole ones (`lapse eval` reads what is left at the "
            "end, too); of agents: actor_critic.validation_episodes")
          .in(0, kMany)
          .used_if(predicts),
      field("validation_streams", validation_streams,
            "validation, and `lapse eval` by default, reads so many streams or windows at a time; 0: as many as batch")
          .in(0, 1 << 20)
          .unit("streams"),
      field("checkpoint_every", checkpoint_every, "0: only at the end").in(0, kMany).unit("updates"),
      field("keep", keep, "how many of the newest checkpoints stay").in(1, 1000),
  };
}

Fields OptimiserConfig::fields(const std::function<bool()>& warms_up) {
  const auto adam = [this] { return name == "adam" || name == "adamw"; };
  return {
      field("name", name, "the optimiser").one_of({"adam", "adamw", "rmsprop", "sgd"}),
      field("rate", rate, "learning rate after warm-up").in(0, 100),
      field("warmup", warmup, "update n uses rate min(1, n / warmup); with train.from there is no warm-up")
          .in(0, 1e9)
          .unit("updates")
          .used_if(warms_up),
      field("schedule", schedule, "after warm-up: constant, or a half cosine to 0 at the last update")
          .one_of({"constant", "cosine"}),
      field("clip", clip, "largest global L2 norm of all gradients; 0: no clipping").in(0, 1e9),
      field("weight_decay", weight_decay, "L2 penalty; for adamw decoupled from the gradient").in(0, 10),
      field("beta1", beta1, "adam, adamw: decay of the first moment").in(0, 0.999999).used_if(adam),
      field("beta2", beta2, "adam, adamw: decay of the second moment").in(0, 0.999999999).used_if(adam),
      field("momentum", momentum, "sgd").in(0, 0.999999).used_if([this] { return name == "sgd"; }),
      field("smoothing", smoothing, "rmsprop: decay of the squared gradient").in(0, 0.999999999).used_if([this] {
        return name == "rmsprop";
      }),
      field("epsilon", epsilon, "adam, adamw, rmsprop: added to the denominator").in(1e-20, 1).used_if([this] {
        return name != "sgd";
      }),
  };
}

Fields ActorCriticConfig::fields() {
  return {
      field("discount", discount, "gamma: what a reward is worth one step earlier").in(0, 1),
      field("value_loss", value_loss, "c_v: weight of the squared error of the predicted returns").in(0, 1e3),
      field("entropy", entropy, "weight of the policy's entropy, which keeps it exploring").in(0, 10),
      field("entropy_last", entropy_last,
            "share of that weight that is left after the last update, to which it falls linearly")
          .in(0, 1),
      field("validation_episodes", validation_episodes,
            "a validation plays so many episodes, the same each time, with actions drawn from the policy")
          .in(1, 1 << 24)
          .unit("episodes"),
  };
}

namespace {

/// Whether the method leaves it to the model if tokens attend themselves.
bool leaves_self(const MethodOptions& method, ModelShape shape) {
  const int64_t least = method.least_age(shape);
  shape.min_age = 1 - shape.min_age;
  return method.least_age(shape) != least;
}

}  // namespace

Config::Config() : method_name(default_method().name) {
  for (const auto& entry : method_table()) methods_.push_back(entry.options());
  for (const auto& entry : task_table()) tasks_.push_back(entry.options());
  for (const auto& entry : environment_table()) environments_.push_back(entry.options());
}

Config::Config(const Config& other) : Config() {
  const Sections from = const_cast<Config&>(other).sections(), to = sections();  // reads from them alone
  for (size_t i = 0; i < to.size(); ++i) copy_values(from[i].fields, to[i].fields);
}

std::vector<Config::Difference> Config::differences(const Config& before, const Config& now) {
  Config one(before), other(now);  // whose fields can be listed
  const Sections old = one.sections(), all = other.sections();
  std::vector<Difference> found;
  for (size_t s = 0; s < all.size(); ++s)
    for (size_t f = 0; f < all[s].fields.size(); ++f) {
      const Field& field = all[s].fields[f];
      const std::string was = field_to_toml(old[s].fields[f]), is = field_to_toml(field);
      if (was != is) found.push_back({all[s].name, field.name, was, is, field.is_path});
    }
  return found;
}

std::string Config::to_toml() const { return config_to_toml(Config(*this).sections()); }

std::string Config::used_toml() const {
  Config copy(*this);
  Sections used = copy.sections();
  std::erase_if(used, [&](const auto& section) { return !uses(section.name); });
  // What is generated is no text, and what an agent sees no token: check_generated refuses what would ask for them.
  const auto of_texts = [&](const std::string& section, const std::string& name) {
    return (generates() && section == "data" && name != "task") ||
           (environment() && section == "model" && (name == "input" || name == "output"));
  };
  for (auto& section : used)
    std::erase_if(section.fields, [&](const Field& field) {
      return of_texts(section.name, field.name) || (field.is_used && !field.is_used());
    });
  return config_to_toml(used);
}

Sections Config::sections() {
  std::vector<std::string> names, tasks = {"none"};
  for (const auto& entry : method_table()) names.push_back(entry.name);
  for (const auto& entry : task_table()) tasks.push_back(entry.name);
  for (const auto& entry : environment_table()) tasks.push_back(entry.name);
  const auto begins_anew = [this] { return train.from.empty(); };
  Fields data_fields = data.fields(begins_anew);
  data_fields.push_back(
      field("task", task_name,
            "instead of a text: sequences that are generated, or an environment to act in; each has a section of its "
            "own")
          .one_of(tasks));
  Sections all = {
      {"data", "the text: one file cut by `split`, or three files; plain or gzip; a generated task or an environment",
       data_fields},
      {"model", "the base model", model.fields([this] { return leaves_self(method(), shape_of(model, train.block)); })},
  };
  for (const auto& section : end_sections()) all.push_back({section.name, section.help, section.fields(model)});
  all.push_back({"forgetting",
                 "how memories expire; each method has a section of its own",
                 {field("method", method_name, "what decides which memories stay").one_of(names)}});
  for (size_t i = 0; i < methods_.size(); ++i)
    all.push_back({methods_[i]->name(), method_table()[i].help, methods_[i]->fields()});
  for (size_t i = 0; i < tasks_.size(); ++i)
    all.push_back({tasks_[i]->name(), "task: " + task_table()[i].help, tasks_[i]->fields()});
  for (size_t i = 0; i < environments_.size(); ++i)
    all.push_back(
        {environments_[i]->name(), "environment: " + environment_table()[i].help, environments_[i]->fields()});
  all.push_back({"train", "the run", train.fields([this] { return !objective_of(*this).acts; })});
  all.push_back({"optimiser", "how weights follow gradients", optimiser.fields(begins_anew)});
  all.push_back({"actor_critic", "what an agent learns from in an environment", actor_critic.fields()});
  return all;
}

size_t Config::method_index(const std::string& name) const { return &find_method(name) - method_table().data(); }

const TaskOptions* Config::task() const {
  for (const auto& options : tasks_)
    if (options->name() == task_name) return options.get();
  return nullptr;
}

const EnvironmentOptions* Config::environment() const {
  for (const auto& options : environments_)
    if (options->name() == task_name) return options.get();
  return nullptr;
}

std::unique_ptr<MethodOptions> Config::copy_method(const std::string& name) const {
  auto copy = find_method(name).options();
  copy_values(methods_[method_index(name)]->fields(), copy->fields());
  return copy;
}

std::unique_ptr<TaskOptions> Config::copy_task() const {
  for (size_t i = 0; i < tasks_.size(); ++i)
    if (tasks_[i]->name() == task_name) {
      auto copy = task_table()[i].options();
      copy_values(tasks_[i]->fields(), copy->fields());
      return copy;
    }
  return nullptr;
}

bool Config::uses(const std::string& section) const {
  const auto named = [&](const auto& all) {
    return std::ranges::any_of(all, [&](const auto& options) { return options->name() == section; });
  };
  if (named(methods_)) return section == method_name;
  if (named(tasks_) || named(environments_)) return section == task_name;
  for (const auto& end : end_sections())
    if (end.name == section) return uses_section(model, section);
  for (const auto& objective : objective_table())
    if (objective.name == section) return &objective == &objective_of(*this);
  return true;
}

bool Config::windows() const { return task() ? task()->window() > 0 : data.in_windows() || data.corrupts_spans(); }

void Config::check_generated() const {
  for (const auto& [key, value] :
       {std::pair("path", data.path), {"train", data.train_path}, {"valid", data.valid_path}, {"test", data.test_path}})
    if (!value.empty())
      fail(fmt::format("data.task = \"{}\" generates what it reads; leave out data.{}, or the task", task_name, key));
  if (data.corrupts_spans()) fail("data.objective = \"span_corruption\" is for texts; leave out data.task");
  if (data.in_windows() || data.unit != DataConfig().unit || !data.tokenizer.empty())
    fail(fmt::format("data.task = \"{}\" has tokens and windows of its own; leave out data.{}", task_name,
                     data.documents != "none"  ? "documents"
                     : data.windows            ? "windows"
                     : !data.tokenizer.empty() ? "tokenizer"
                                               : "unit"));
  if (environment()) return check_environment();
  if (task()->window() > train.block)
    fail(
        fmt::format("data.task = \"{}\" has sequences of up to {} tokens, and train.block = {} must hold a whole one: "
                    "set train.block = {}",
                    task_name, task()->window(), train.block, task()->window()));
  task()->check();
}

// Its episodes begin in the middle of blocks, and what is observed is no word.
void Config::check_environment() const {
  if (model.input != ModelConfig().input || model.output != ModelConfig().output)
    fail(fmt::format("data.task = \"{}\" has an input and an output of its own; leave out model.input and model.output",
                     task_name));
  environment()->check();
  if (method().initial_rows(shape_of(model, train.block)) > 0)
    fail(
        fmt::format("data.task = \"{}\" has episodes, which start from empty memory: set {}.initial_memory = \"empty\"",
                    task_name, method_name));
}

void Config::check() const {
  model.check();
  if (generates()) check_generated();
  if (model.encoder_layers > 0 && !data.corrupts_spans())
    fail(
        "model.encoder_layers needs data.objective = \"span_corruption\": else there is nothing for an encoder to "
        "read");
  if (data.corrupts_spans() && model.encoder_layers == 0)
    fail(
        "data.objective = \"span_corruption\" needs an encoder, which reads what is left of the text: "
        "model.encoder_layers");
  if (data.corrupts_spans() && data.windows)
    fail("data.objective = \"span_corruption\" cuts the text itself; leave out data.windows");
  if (position_kind(model.positions).windows && !windows())
    fail(fmt::format("model.positions = \"{}\" {}", model.positions,
                     generates()
                         ? fmt::format("is for windows, and data.task = \"{}\" has streams without end; use \"{}\"",
                                       task_name, ModelConfig().positions)
                         : "needs data.windows = true, or data.documents: there are positions for the tokens of a "
                           "window alone, and a stream has no end"));
  method().check(shape_of(model, train.block));
  if (objective_of(*this).acts != (environment() != nullptr))
    fail(fmt::format("train.objective = \"{}\" is for {}; leave it out", train.objective,
                     environment() ? "what is predicted, and this run acts in an environment"
                                   : "agents in environments, and this run acts in none"));
  if (train.batch % train.parts != 0)
    fail(fmt::format("train.batch = {} is no multiple of train.parts = {}", train.batch, train.parts));
}

namespace {

/// How `lapse eval` reads a model with the budget that training refuses.
std::string how_to_read(const MethodOptions& method) {
  return method.adopts() ? fmt::format("--method {} --budget N", method.name()) : "--budget N";
}

/// Whether rows leave by a budget where a trained model is read: then an agent acts on fewer rows than it learns from.
bool limits_rows(const Config& config) {
  const auto method = config.copy_method(config.method_name);
  if (has_budgets(*method) && !budgets_of(*method).budgets().empty()) return true;
  Random none(0, "weights");
  return method->make(shape_of(config.model, config.train.block), 0, none)->one_by_one();
}

bool draws_in_training(const Config& config) {
  const ModelConfig& model = config.model;
  return config.method().draws_in_training() || std::max({model.dropout, model.layer_drop, model.embedding_dropout,
                                                          model.residual_dropout, model.output_dropout}) > 0;
}

/// A checkpoint keeps the configuration, and its file holds UTF-8 alone.
void require_utf8(const Config& config) {
  const std::string text = config.to_toml();
  char32_t code;
  for (size_t at = 0; at < text.size();) {
    if (next_code_point(text, at, code)) continue;
    const size_t line = text.rfind('\n', at) + 1;
    fail(fmt::format("the configuration's {} is not UTF-8; give the file or folder another name",
                     text.substr(line, text.find(' ', line) - line)));
  }
}

}  // namespace

void require_new_run(const Config& config) {
  require_trainable_here(config);
  config.method().check_new(shape_of(config.model, config.train.block));
  if (!config.data.tokenizer.empty() && !unit_named(config.data.unit).pieces)
    fail(
        fmt::format("data.tokenizer is for data.unit = \"subword\" and \"t5\", and data.unit is \"{}\"; leave out one "
                    "of them",
                    config.data.unit));
  if (unit_named(config.data.unit).normalised && !config.data.corrupts_spans())
    fail(fmt::format("data.unit = \"{}\" is for data.objective = \"span_corruption\"; use \"subword\"",
                     config.data.unit));
  if (config.data.documents == "whole")
    fail(
        "data.documents = \"whole\" would make the whole text one document, of which a window's beginning is read; it "
        "is "
        "for --data-documents. Give \"lines\" or markers, or \"none\" for streams");
  require_utf8(config);
  const std::string what = config.generates() ? fmt::format("data.task = \"{}\"", config.task_name)
                                              : fmt::format("data.unit = \"{}\"", config.data.unit);
  const bool ranked = !config.generates() && unit_named(config.data.unit).ranked;
  for (const auto& end : end_sections())
    if (const auto option = end.needs_ranks(config.model); !ranked && !option.empty() && config.uses(end.name))
      fail(
          fmt::format("{} is for data.unit = \"word\", whose tokens are numbered by how frequent they are; those of {} "
                      "are not. Leave out model.input and model.output = \"{}\"",
                      option, what, end.name));
  if (config.environment() && draws_in_training(config))
    fail(
        "an agent learns from what it did: with model.dropout, layer_drop, embedding_dropout, residual_dropout or "
        "output_dropout, or spans that are cut at random (random_drop), the model that learns is not the one that "
        "acted; set them to 0, or to false");
  if (config.environment() && limits_rows(config))
    fail(
        fmt::format("an agent cannot be trained with budgets of rows, which hold only where a trained model is read: "
                    "forgetting.method = \"{}\"; train without one, and read the agent with it: lapse eval RUN {}",
                    config.method_name, how_to_read(*config.copy_method(config.method_name))));
}

void require_trainable_here(const Config& config) {
  config.check();
  const at::Device device = find_device(config.train.device);
  if (config.train.precision == "bf16" && !has_bfloat16_products(device))
    fail("train.precision = \"bf16\" needs a processor that multiplies bfloat16 (AVX-512 BF16); use \"float32\" here");
}

}  // namespace lapse
