// Environments whose episodes either succeed or fail, so that the mean of their scores is a share.
#pragma once

namespace lapse {

/// What an EnvironmentOptions is too where an episode's score is 1, success, or 0.
class SuccessOptions {
 public:
  virtual ~SuccessOptions() = default;
  /// Whether with these options an episode's return is its score.
  virtual bool returns_score() const = 0;
};

}  // namespace lapse
