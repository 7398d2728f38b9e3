#include "lapse/serve/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "lapse/core/error.h"
#include "lapse/serve/failure.h"

namespace lapse {
namespace {

// Between states, while they are new: a state keeps memory that would else be used again, and an undo takes as long as
// the steps did. So many steps at least, and not many more than take this long.
constexpr int64_t kFew = 64;
constexpr std::chrono::milliseconds kLong{400};
constexpr double kLongestWait = 86400;  // seconds that a step waits for the next, however slow the speed

}  // namespace

void Snapshots::add(const Subject& subject, Clock::duration took) {
  const int64_t now = subject.time(), since = all_.empty() ? kMost : now - all_.back().time;
  took_ += took;
  if (since < kFew || (since < kMost && took_ < kLong)) return;
  took_ = {};
  all_.push_back({now, subject.save()});
  // A state goes where its neighbours are no farther apart than a quarter of its age: an undo then takes at most a
  // third of the steps that it undoes once more. The first stays.
  for (size_t i = all_.size(); i-- > 2;) {
    const int64_t age = now - all_[i - 1].time, gap = all_[i].time - all_[i - 2].time;
    if (gap * 4 <= age) all_.erase(all_.begin() + static_cast<int64_t>(i) - 1);
  }
}

const Snapshots::One& Snapshots::before(int64_t time) const {
  const auto after = std::ranges::upper_bound(all_, time, {}, &One::time);
  if (after == all_.begin())
    fail(fmt::format("time {} is too long ago; the earliest that is kept is {}", time,
                     all_.empty() ? 0 : all_.front().time));
  return *std::prev(after);
}

void Snapshots::forget_after(int64_t time) {
  std::erase_if(all_, [&](const One& one) { return one.time > time; });
}

int64_t Snapshots::forget_before(int64_t now, int64_t keep) {
  while (all_.size() > 1 && all_[1].time <= now - keep) all_.erase(all_.begin());
  return all_.empty() ? 0 : all_.front().time;
}

Session::Session(std::string id, std::unique_ptr<Subject> subject)
    : id(std::move(id)), outbox(std::make_shared<Outbox>()), subject_(std::move(subject)) {
  snapshots_.add(*subject_);
  announce();
}

void Session::announce() {
  named_ = false;
  outbox->put("begin", subject_->describe());
  say_state();
}

void Session::say_state() {
  outbox->put("state", {{"playing", playing_ || reading_},
                        {"time", time()},
                        {"given", subject_->given()},
                        {"speed", speed_},
                        {"stuck", subject_->stuck()}});
  if (!failure_.empty()) outbox->put("failed", {{"message", failure_}});  // a page takes it back with the next state
}

void Session::stop() {
  playing_ = reading_ = false;
  failure_.clear();
}

void Session::play(int64_t steps, double speed) {
  stop();
  playing_ = true, left_ = steps == 0 ? -1 : steps, speed_ = speed;
  next_ = Clock::now();
  say_state();
}

void Session::pause() {
  stop();
  say_state();
}

void Session::fail_with(const std::string& message) {
  stop();
  failure_ = message;
  say_state();
}

void Session::read() {
  failure_.clear();
  reading_ = true;
  say_state();
}

void Session::step() {
  require_settled();
  if (const auto why = subject_->stuck(); !why.empty()) fail(why);
  stop();
  try {
    take(/*quiet=*/false);
  } catch (...) {
    say_state();
    throw;
  }
  say_state();
}

void Session::require_settled() const {
  if (subject_->time() < quiet_until_) fail("earlier steps are being taken again; try again in a moment");
}

void Session::undo(int64_t time) {
  if (const int64_t now = this->time(); time < 0 || time > now)
    fail(fmt::format("there is no time {} to go back to; it is {}", time, now));
  const auto& state = snapshots_.before(time);
  stop();
  subject_->restore(*state.state);
  subject_->forget_after(time);
  snapshots_.forget_after(time);
  quiet_until_ = time;
  outbox->put("undo", {{"t", time}});
  if (subject_->time() == time) say_state();
}

void Session::replace(std::unique_ptr<Subject> subject) {
  subject_ = std::move(subject);
  snapshots_ = {};
  snapshots_.add(*subject_);
  quiet_until_ = 0;
  stop();
  reading_ = subject_->given();
  announce();
}

Json Session::row(int64_t time) {
  const int64_t now = subject_->time();
  if (now < quiet_until_ && time >= 0 && time < quiet_until_) return nullptr;  // an undo is on its way
  if (time < 0 || time >= now) fail(fmt::format("there is no time {} yet; it is {}", time, now));
  return subject_->row(time, *snapshots_.before(now - 1).state);
}

Session::Clock::time_point Session::due() const {
  if (subject_->time() < quiet_until_) return Clock::time_point::min();
  if (!playing_ && !reading_) return Clock::time_point::max();
  if (outbox->full()) return Clock::now() + TextBox::kBehind;
  return playing_ && speed_ > 0 ? next_ : Clock::time_point::min();
}

// After a step that failed: one lane may have taken it and another not. The newest state is whole, and the steps since
// then are taken again; if they fail too, the subject stays in that state, and what it was given waits to be read.
void Session::mend(bool quiet) {
  const int64_t seen = time();
  const auto& whole = snapshots_.before(subject_->time());
  subject_->restore(*whole.state);
  quiet_until_ = quiet ? whole.time : seen;
  if (quiet) outbox->put("undo", {{"t", whole.time}});
}

void Session::take(bool quiet) {
  const auto begin = Clock::now();
  std::function<std::string()> event;
  try {
    event = subject_->step();
  } catch (const std::exception& error) {
    failure_ = message_of(error);
    mend(quiet);
    throw;
  }
  if (!quiet) {
    if (!named_) outbox->put("names", subject_->describe());
    named_ = true;
    outbox->put_step(std::move(event));
  }
  snapshots_.add(*subject_, Clock::now() - begin);
  if (const int64_t now = subject_->time(); now % 1024 == 0)
    subject_->forget_before(snapshots_.forget_before(now, kKept));
}

void Session::turn() {
  if (subject_->time() < quiet_until_) {
    take(/*quiet=*/true);
    if (subject_->time() == quiet_until_) say_state();
    return;
  }
  const bool given = subject_->given();
  const bool over = !subject_->stuck().empty() || (!given && (reading_ || left_ == 0));
  if (over || outbox->full()) {
    if (over) pause();
    return;
  }
  if (!given && left_ > 0) --left_;
  if (speed_ > 0) {
    const auto each =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(std::min(1 / speed_, kLongestWait)));
    next_ = std::max(next_ + each, Clock::now() - std::chrono::milliseconds(100));
  }
  take(/*quiet=*/false);
}

}  // namespace lapse
