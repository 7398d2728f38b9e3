// Processes that train or read with one model together, each with its share of the samples. A launcher (torchrun)
// starts them; each calls the same functions of the group, in the same order.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace lapse {

class Group {
 public:
  virtual ~Group() = default;
  virtual int64_t rank() const = 0;  ///< 0 ... size - 1
  virtual int64_t size() const = 0;
  /// How many of them share this machine, this one included, if the launcher tells; else 1.
  virtual int64_t neighbours() const { return 1; }

  /// Replaces the numbers by their sums over the ranks, added in the ranks' order, ((x0 + x1) + x2) + ...: the same
  /// bits on every rank, and those of a single process that adds them in this order. Error, naming the ranks that did
  /// not answer, as of the two functions below.
  virtual void sum(std::span<float> numbers) = 0;
  virtual void sum(std::span<double> numbers) = 0;
  /// Every rank's bytes, by rank, on rank 0; nothing on the others.
  virtual std::vector<std::string> gather(const std::string& bytes) = 0;
  /// Rank 0's bytes.
  virtual std::string broadcast(const std::string& bytes) = 0;

  /// Whether this rank writes: files, and what the user reads.
  bool first() const { return rank() == 0; }
  bool alone() const { return size() == 1; }
  /// Whether it is true on any rank: the same answer on all.
  bool any(bool mine);
};

/// The group of a process that works alone.
Group& solo() noexcept;

/// The group that this process was started in: RANK and WORLD_SIZE of the environment, with MASTER_ADDR and MASTER_PORT
/// where they meet, as torchrun sets them; solo without WORLD_SIZE, or if that is 1. May be called again. Error if the
/// others cannot be reached, or for a RANK above 0 without WORLD_SIZE. `patience`: seconds that a rank waits for the
/// others, before it says which did not answer.
Group& join_group(double patience);
constexpr double kPatience = 600;  ///< by default

/// The part of n things that is this rank's: shares differ by at most one, and follow each other in the ranks' order.
struct Share {
  int64_t first = 0, count = 0;
};
Share share_of(int64_t n, int64_t part, int64_t parts);

}  // namespace lapse
