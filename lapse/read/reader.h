// A trained run opened for reading: what `lapse eval`, `generate`, `inspect` and `prune` begin with.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "lapse/core/group.h"
#include "lapse/core/json.h"
#include "lapse/data/corpus.h"
#include "lapse/data/source.h"
#include "lapse/train/checkpoint.h"

namespace lapse {

/// How a run is read, where not as it was trained.
struct ReadingOptions {
  using Values = std::map<std::string, std::string>;  ///< "max_span" -> "256"

  std::string run;                    ///< its folder, or one of its checkpoints
  std::optional<std::string> method;  ///< another forgetting method, one that needs no training
  Values of_method, of_task;          ///< over MethodOptions::reading_fields and TaskOptions::reading_fields
  std::string precision = "float32";  ///< or "bf16": Transformer::to_bfloat16
  std::string device = "cpu";         ///< find_device
  int64_t threads = 0;                ///< 0: all cores
};

/// What of it changes the numbers: {"precision": ..., "max_span": 256, ...}.
Json to_json(const ReadingOptions& options);
/// What a run reads, or in what it acts: the sections [data] and that of its task, as a configuration has them, and
/// "task_options", the task's options that are given. Figures of runs can be compared where these are the same.
Json read_by(Config config, const ReadingOptions& options);

/// Of runs that read documents.
struct DocumentOptions {
  double min_fill = 0;  ///< only those are read that fill at least this share of a window of so many tokens; 0: all
  int64_t window = 0;
  std::string kind = {};  ///< how those of a text that is given are found, as data.documents; "": as in training
};

struct Reader {
  Checkpoint checkpoint;                  ///< with the configuration as trained
  std::unique_ptr<MethodOptions> method;  ///< what the model is read with
  std::unique_ptr<TaskOptions> task;      ///< null: the run reads a text
  std::string precision;
  at::Device device;
  Json feed;  ///< where training was (Feed::state), or null

  const Config& config() const { return checkpoint.config(); }
  const Vocabulary& vocabulary() const { return checkpoint.vocabulary(); }

  std::unique_ptr<Transformer> model() const;
  /// The same with the weights of a model that another reader of the checkpoint made; this one's may be closed.
  std::unique_ptr<Transformer> model(Transformer& weights) const;
  /// On what the model's answers depend, in lines "name = value" for require_agreement. Before the checkpoint is
  /// closed.
  std::string described() const;
  /// The method and its options of reading, each as it was given or else as the run has it: "NAME, budget 128".
  std::string method_read(const ReadingOptions& options) const;
  /// Error, naming the verbs that are for it, if the run acts in an environment.
  void require_text(const std::string& verb) const;
  /// The run's task, or its text. Error if there is a task, and `data` or `documents` too.
  std::unique_ptr<Source> source(const std::string& data, const std::string& split,
                                 const DocumentOptions& documents = {}) const;
  /// A split of the text in the file `data`, cut as the run's configuration says, or if that is empty of the run's own
  /// text, with a warning where that is another now than in training. Error if the run has a task or an environment
  /// instead; also if documents are asked for by their length, and the run reads none, or none is so long.
  Tokens text(const std::string& data, const std::string& split, const DocumentOptions& documents = {}) const;

 private:
  Tokens whole_text(const std::string& data, const std::string& split, const std::string& kind) const;
  Tokens own_text(const std::string& split) const;
  void warn_of_another_text(const std::string& split, const Tokens& tokens) const;
};

/// Opens the run's newest whole checkpoint, chooses method and options, and sets the threads. Error if the method or
/// the task does not know an option, the method would have to be trained, or there is no such device. All ranks of a
/// group open the same file.
Reader open_reader(const ReadingOptions& options, Group& group = solo());
/// The options of the method that a model of this configuration is read with, as `open_reader` finds them. Errors as
/// there.
std::unique_ptr<MethodOptions> method_to_read_with(const Config& config, const ReadingOptions& options);
/// The checkpoint of a reader, which may be closed, read in another way; options.run has no effect.
Reader reopened(const Reader& reader, const ReadingOptions& options);

}  // namespace lapse
