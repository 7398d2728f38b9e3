// What a generated task is: its options, and the source of its blocks.
#pragma once

#include "lapse/core/config.h"
#include "lapse/data/source.h"

namespace lapse {

class TaskOptions {
 public:
  virtual ~TaskOptions() = default;
  virtual std::string name() const = 0;

  /// Keys of the task's section of the configuration file.
  virtual Fields fields() = 0;
  /// Options of `lapse eval` (test_seed becomes --test-seed), over what the run was trained with.
  virtual Fields reading_fields();
  /// Error if the options contradict each other.
  virtual void check() const {}

  /// Tokens of the longest sequence, where sequences are independent: each starts from empty memory. 0: streams without
  /// end.
  virtual int64_t window() const = 0;
  /// Of its vocabulary: "token", or "word" where it reads text.
  virtual std::string unit() const { return "token"; }
  virtual bool scores_all() const { return false; }  ///< whether every token is predicted, not a few answers
  virtual std::unique_ptr<Source> open() const = 0;

 protected:
  int64_t test_seed_ = 1;  ///< of the validation and the test set
};

/// The part of Source that tasks share: accuracies, and no text.
class TaskSource : public Source {
 public:
  TaskSource(std::string name, Vocabulary vocabulary, int64_t test_seed)
      : name_(std::move(name)), vocabulary_(std::move(vocabulary)), test_seed_(test_seed) {}

  const Vocabulary& vocabulary() const override { return vocabulary_; }
  uint32_t checksum(const std::string&) const override { return 0; }
  bool has(const std::string& part) const override { return part == "valid" || part == "test"; }
  /// The share of scored positions predicted right, and of whole answers where they are longer than one position.
  std::vector<Figure> figures(const Score& score) const override;

 protected:
  const std::string& name() const { return name_; }
  /// The stream that a part is drawn from; Error if the task has no such part.
  Random random_of(const std::string& part) const;

 private:
  std::string name_;
  Vocabulary vocabulary_;
  int64_t test_seed_;
};

}  // namespace lapse
