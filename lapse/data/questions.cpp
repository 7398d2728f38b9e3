#include "lapse/data/questions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "lapse/core/error.h"
#include "lapse/core/json.h"
#include "lapse/data/utf8.h"

namespace lapse {
namespace {

constexpr int64_t kUnknown = -1;

/// The number of one of `count` candidates; kUnknown if the text is none.
int64_t number_of(const std::string& text, size_t count) {
  int64_t number = kUnknown;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number >= 0 && number < static_cast<int64_t>(count) ? number : kUnknown;
}

/// The number of the right one of `count` candidates; kUnknown if the line does not have it.
int64_t answer_of(const JsonObject& line, const std::string& key, size_t count) {
  if (count == 0) return kUnknown;  // which is refused later, with a better reason
  return line.has(key) ? line.whole(key, 0, static_cast<int64_t>(count) - 1) : kUnknown;
}

/// The same from a text, as copies of published files have it, "" for none.
int64_t answer_in_text(const JsonObject& line, const std::string& key, size_t count) {
  if (!line.has_text(key)) return answer_of(line, key, count);
  const std::string text = line.text(key);
  if (text.empty()) return kUnknown;
  const int64_t answer = number_of(text, count);
  if (answer == kUnknown) line.refuse(key, fmt::format("a whole number of 0 ... {}", count - 1));
  return answer;
}

Question our_own(const JsonObject& line) {
  Question question{line.text("context"), line.texts("choices")};
  question.answer = answer_of(line, "answer", question.candidates.size());
  return question;
}

Question hellaswag(const JsonObject& line) {
  Question question{line.text("ctx"), line.texts("endings")};
  question.answer = answer_in_text(line, "label", question.candidates.size());
  return question;
}

/// The number of the label that `answerKey` has; kUnknown if the line does not have it. `where`: the labels' key.
int64_t answer_by_label(const JsonObject& line, const std::vector<std::string>& labels, const std::string& where) {
  const std::string right = line.has("answerKey") ? line.text("answerKey") : "";
  if (right.empty()) return kUnknown;
  const auto found = std::ranges::find(labels, right);
  if (found == labels.end()) line.refuse("answerKey", "the label of one of " + where);
  if (std::count(found, labels.end(), right) > 1)
    line.refuse("answerKey", fmt::format("the label of one of {}, not of several", where));
  return found - labels.begin();
}

/// As Hugging Face's datasets have them: the choices' texts and labels side by side.
Question labelled_columns(const JsonObject& line, const std::string& key) {
  const JsonObject choices = line.object("choices");
  Question question{line.text(key), choices.texts("text"), kUnknown};
  const auto labels = choices.texts("label");
  if (labels.size() != question.candidates.size()) line.refuse("choices", "of as many labels as texts");
  question.answer = answer_by_label(line, labels, "choices.label");
  return question;
}

/// ARC, OpenBookQA and CommonsenseQA: the answer is the label of a choice.
Question labelled(const JsonObject& line) {
  if (line.has_text("question")) return labelled_columns(line, "question");
  const JsonObject asked = line.object("question");
  Question question{asked.text("stem"), {}, kUnknown};
  std::vector<std::string> labels;
  for (const JsonObject& choice : asked.objects("choices")) {
    if (line.has("answerKey")) labels.push_back(choice.text("label"));
    question.candidates.push_back(choice.text("text"));
  }
  question.answer = answer_by_label(line, labels, "question.choices");
  return question;
}

Question openbookqa(const JsonObject& line) { return labelled_columns(line, "question_stem"); }

Question piqa(const JsonObject& line) {
  Question question{line.text("goal"), {line.text("sol1"), line.text("sol2")}};
  question.answer = answer_in_text(line, "label", 2);
  return question;
}

/// How the lines of some files are told and read.
struct Form {
  const char* files;
  const char* keys;    // in them
  const char* key;     // that tells the form
  const char* answer;  // where the right candidate is
  Question (*read)(const JsonObject& line);
};

constexpr Form kForms[] = {
    {"your own", "context, choices: [TEXT, ...], answer: 0, 1, ...", "context", "answer", our_own},
    {"HellaSwag", "ctx, endings, label", "ctx", "label", hellaswag},
    {"ARC, OpenBookQA, CommonsenseQA", "question: {stem, choices: [{text, label}, ...]}, answerKey", "question",
     "answerKey", labelled},
    {"the same, from `datasets`", "question (or question_stem), choices: {text, label}, answerKey", "question_stem",
     "answerKey", openbookqa},
    {"PiQA", "goal, sol1, sol2, and label or --labels", "goal", "label", piqa},
};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(kWhiteSpace) + 1 - begin);
}

Question read_question(const std::string& text, const std::string& origin, bool labelled_apart) {
  Json json = parse_json(text, origin);
  const JsonObject line(json, origin);
  const auto* const form = std::ranges::find_if(kForms, [&](const Form& f) { return line.has(f.key); });
  if (form == std::end(kForms)) {
    std::vector<std::string> keys;
    for (const Form& one : kForms) keys.push_back(fmt::format("'{}'", one.key));
    fail(fmt::format("{}: no question: it has none of the keys {}; lapse eval --help shows the forms", origin,
                     fmt::join(keys, ", ")));
  }
  if (labelled_apart) json.erase(form->answer);  // which need not be one: published files without labels have -1 there
  Question question = form->read(line);
  question.origin = origin;
  if (question.candidates.size() < 2) fail(fmt::format("{}: there are fewer than two candidates", origin));
  if (question.answer == kUnknown && !labelled_apart)
    fail(fmt::format("{}: '{}' is missing, the right answer; or give it in a file of its own: --labels FILE", origin,
                     form->answer));
  for (std::string& candidate : question.candidates) {
    candidate = trimmed(candidate);
    if (candidate.empty()) fail(fmt::format("{}: a candidate is empty", origin));
  }
  question.context = trimmed(question.context);
  return question;
}

/// Visits the lines that are not blank, each with its origin.
template <class Visit>
void for_each_line(const NamedText& file, const Visit& visit) {
  const std::string& text = file.text;
  int64_t number = 1;
  for (size_t at = 0, end; at < text.size(); at = end + 1, ++number) {
    end = std::min(text.find('\n', at), text.size());
    if (const std::string line = trimmed(text.substr(at, end - at)); !line.empty())
      visit(line, fmt::format("{}:{}", file.origin, number));
  }
}

void read_labels(const NamedText& file, std::vector<Question>& questions) {
  size_t next = 0;
  for_each_line(file, [&](const std::string& line, const std::string& origin) {
    if (next == questions.size())
      fail(fmt::format("{}: more labels than questions, of which there are {}", origin, questions.size()));
    Question& question = questions[next++];
    question.answer = number_of(line, question.candidates.size());
    if (question.answer == kUnknown)
      fail(fmt::format("{}: the label must be a whole number of 0 ... {}", origin, question.candidates.size() - 1));
  });
  if (next < questions.size()) fail(fmt::format("{}: {} labels for {} questions", file.origin, next, questions.size()));
}

}  // namespace

std::vector<Question> parse_questions(const NamedText& lines, const std::optional<NamedText>& labels) {
  std::vector<Question> questions;
  for_each_line(lines, [&](const std::string& line, const std::string& origin) {
    questions.push_back(read_question(line, origin, labels.has_value()));
  });
  if (questions.empty()) fail(lines.origin + ": there is no question in it");
  if (labels) read_labels(*labels, questions);
  return questions;
}

std::vector<Question> read_questions(const fs::path& path, const fs::path& labels) {
  const auto read = [](const fs::path& from) { return NamedText{read_text_file(from), from.string()}; };
  const NamedText lines = read(path);
  return parse_questions(lines, labels.empty() ? std::nullopt : std::optional(read(labels)));
}

std::string question_forms() {
  std::string all;
  for (const Form& form : kForms) all += fmt::format("  {:<32}{}\n", form.files, form.keys);
  return all;
}

}  // namespace lapse
