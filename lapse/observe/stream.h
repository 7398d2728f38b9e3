// What each token changes in every layer's memory: which rows went, why, and what the method told of them. It remembers
// only rows that are still there, so a stream without end costs no more than the model's own memory.
#pragma once

#include <c10/util/SmallVector.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lapse/observe/observer.h"

namespace lapse {

/// Why no later query reads a row.
enum class Gone {
  expired,  ///< its time was over, as it was known when the row came
  evicted,  ///< the reading of a query made it go sooner: a budget
  begun,    ///< an episode began
};

/// What a method tells of a row, in the order of Stream::names. So few numbers take no memory of their own: another
/// thread gives back what was made for a token, and the system's allocator is slow where two threads share blocks.
using Told = c10::SmallVector<double, 4>;

/// A told number of a row that grew, and with which token's query.
struct Raise {
  int64_t by = -1;  ///< time of the query; -1: none
  double amount = 0;
};

/// One row that stands for a token.
struct LiveRow {
  int64_t time = 0;
  Told told;                    ///< as last told
  std::array<Raise, 3> raised;  ///< the largest growths of the first name that queries change, in descending order
};

struct EndedRow : LiveRow {
  int64_t last;  ///< time of the last query that could read it
  Gone why;
};

struct LayerChange {
  int64_t size;                         ///< |C_t|: rows that the token's query could read
  Told told;                            ///< of the token's own row
  c10::SmallVector<EndedRow, 1> ended;  ///< rows that the next query cannot read, by ascending time
};

class Stream : public Observer {
 public:
  /// The model must outlive the stream. `names`: what its method tells of rows.
  explicit Stream(const Transformer& model);

  BlockOptions wants() const override { return {.rows = true}; }
  void token(const SeenToken& seen) override;

  /// What the last token changed, layer by layer.
  const std::vector<LayerChange>& changes() const { return changes_; }
  /// The same, to keep; asked for once.
  std::vector<LayerChange> take_changes() { return std::move(changes_); }
  /// What the method tells: "span", "score". Known once a token was read.
  const std::vector<std::string>& names() const { return names_; }
  /// A layer's rows that the next query can read, by ascending time; pooled rows are not among them.
  std::vector<LiveRow> live(int64_t layer) const;
  /// The one of this time; none: the next query cannot read it.
  std::optional<LiveRow> find(int64_t layer, int64_t time) const;

 private:
  /// Rows of one layer, column by column: every token looks at all of them.
  struct Live {
    std::vector<int64_t> time;
    std::vector<double> told;                  // [rows][names]
    std::vector<std::array<Raise, 3>> raised;  // empty where queries change nothing
  };
  struct Numbers;
  LiveRow row(const Live& live, size_t i) const;
  void shift(Live& live, size_t from, size_t end, size_t to) const;
  void resize(Live& live, size_t rows) const;
  LayerChange follow(Live& live, const SeenRows& seen, int64_t now) const;
  void tell(Live& live, size_t place, const Numbers& seen, int64_t i) const;
  void add(Live& live, const Numbers& seen, int64_t i, int64_t now, LayerChange& change) const;
  void learn_names(const SeenRows& seen);

  std::vector<std::string> columns_;  // that queries change: Method::state
  std::vector<std::string> names_;
  int64_t changing_ = -1;  // the name of `raised`, in names_; -1: none
  std::vector<Live> layers_;
  std::vector<LayerChange> changes_;
};

}  // namespace lapse
