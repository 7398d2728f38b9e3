#include "lapse/observe/alignment.h"

#include <algorithm>

namespace lapse {
namespace {

/// How long the words of a text are; `numbers`: of each token the number of its word.
class Words {
 public:
  explicit Words(const std::vector<int64_t>& numbers) : tokens_(numbers.empty() ? 0 : numbers.back() + 1) {
    for (const int64_t word : numbers) ++tokens_[word];
  }
  size_t count() const { return tokens_.size(); }
  /// Whether an edit in it is one of all of it.
  bool is_whole(int64_t word) const { return tokens_[word] <= kLongestWord; }

 private:
  std::vector<int64_t> tokens_;
};

}  // namespace

// Myers (1986), "An O(ND) difference algorithm": reach[k] is the largest x that d edits reach on the diagonal
// k = x - y. Entry k of a step stands at k + d; `steps` keeps all of them to walk back.
Alignment aligned(const std::vector<int32_t>& a, const std::vector<int32_t>& b, int64_t most_edits) {
  const auto n = std::ssize(a), m = std::ssize(b);
  std::vector<int64_t> partner(n, -1);
  int64_t front = 0, back = 0;
  while (front < std::min(n, m) && a[front] == b[front]) partner[front] = front, ++front;
  while (back < std::min(n, m) - front && a[n - 1 - back] == b[m - 1 - back]) ++back, partner[n - back] = m - back;
  const int64_t N = n - front - back, M = m - front - back;  // of the middle
  std::vector<std::vector<int64_t>> steps;
  const auto reached = [&](int64_t d, int64_t k) { return steps[d][k + d]; };
  // The last of d edits leads down, from diagonal k + 1 (b's token is inserted), or right, from k - 1.
  const auto down = [&](int64_t d, int64_t k) {
    return k == -d || (k != d && reached(d - 1, k - 1) < reached(d - 1, k + 1));
  };
  const auto entry = [&](int64_t d, int64_t k) {
    if (d == 0) return int64_t{0};
    return down(d, k) ? reached(d - 1, k + 1) : reached(d - 1, k - 1) + 1;
  };
  bool found = false;
  for (int64_t d = 0; d <= std::min(most_edits, N + M) && !found; ++d) {
    std::vector<int64_t> reach(2 * d + 1);
    for (int64_t k = -d; k <= d && !found; k += 2) {
      int64_t x = entry(d, k);
      while (x < N && x - k < M && a[front + x] == b[front + x - k]) ++x;
      reach[k + d] = x;
      found = k == N - M && x >= N;
    }
    steps.push_back(std::move(reach));
  }
  if (!found) return {partner, false};
  int64_t x = N, y = M;
  for (int64_t d = std::ssize(steps) - 1; d >= 0; --d) {
    const int64_t k = x - y, start = entry(d, k);
    for (; x > start; --x, --y) partner[front + x - 1] = front + y - 1;
    if (d == 0) break;
    down(d, k) ? --y : --x;
  }
  return {partner, true};
}

void widen_edits(Alignment& alignment, const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  const Words words_a(a), words_b(b);
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<bool> edited_a(words_a.count()), edited_b(words_b.count()), taken(b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      if (alignment.partner[i] < 0)
        edited_a[a[i]] = words_a.is_whole(a[i]);
      else
        taken[alignment.partner[i]] = true;
    }
    for (size_t j = 0; j < b.size(); ++j)
      if (!taken[j]) edited_b[b[j]] = words_b.is_whole(b[j]);
    for (size_t i = 0; i < a.size(); ++i) {
      int64_t& partner = alignment.partner[i];
      if (partner >= 0 && (edited_a[a[i]] || edited_b[b[partner]])) partner = -1, changed = true;
    }
  }
}

std::vector<int64_t> word_numbers(const std::vector<std::string>& texts) {
  const auto space = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  std::vector<int64_t> words;
  int64_t word = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const bool parted = !texts[i].empty() && space(texts[i].front());
    const bool behind = i > 0 && !texts[i - 1].empty() && space(texts[i - 1].back());
    if (i > 0 && (parted || behind)) ++word;
    words.push_back(word);
  }
  return words;
}

std::vector<int64_t> character_numbers(const std::vector<std::string>& texts) {
  const auto continues = [](const std::string& text) { return !text.empty() && (text[0] & 0xC0) == 0x80; };
  std::vector<int64_t> characters;
  for (const std::string& text : texts)
    characters.push_back(characters.empty() ? 0 : characters.back() + !continues(text));
  return characters;
}

}  // namespace lapse
