// Two texts, one perhaps an edit of the other: which tokens they have in common.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lapse {

struct Alignment {
  std::vector<int64_t> partner;  ///< of each token of the one text its place in the other, or -1
  bool whole;                    ///< else only what the texts begin and end with was compared
};

constexpr int64_t kMostEdits = 2000;

/// A longest common subsequence of `a` and `b`; not whole where more than `most_edits` tokens would have to be deleted
/// or inserted.
Alignment aligned(const std::vector<int32_t>& a, const std::vector<int32_t>& b, int64_t most_edits = kMostEdits);

constexpr int64_t kLongestWord = 30;  ///< in tokens; longer ones are text without spaces

/// An edit is of whole words, or characters: a token has no partner where another token of its word, or of its
/// partner's, has none. Not so of words with more than kLongestWord tokens. `a`, `b`: of each token the number of its
/// word, ascending.
void widen_edits(Alignment& alignment, const std::vector<int64_t>& a, const std::vector<int64_t>& b);

/// The numbers of the words that tokens with these texts belong to; white space parts words, and belongs to none.
std::vector<int64_t> word_numbers(const std::vector<std::string>& texts);

/// The numbers of the characters of UTF-8 that tokens with these texts belong to: a token that begins within a
/// character belongs to the token before it.
std::vector<int64_t> character_numbers(const std::vector<std::string>& texts);

}  // namespace lapse
