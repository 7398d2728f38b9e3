#include "lapse/serve/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "lapse/core/error.h"
#include "lapse/serve/failure.h"

namespace lapse {
namespace {

using Clock = Session::Clock;

/// 128 bits that nobody can guess.
std::string new_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 4; ++i) id += fmt::format("{:08x}", device());
  return id;
}

}  // namespace

void Engine::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  wake_.notify_one();
}

void Engine::post(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  if (stopping_) throw Failure(503, "the server is stopping");
  posted_.push_back(std::move(work));
  wake_.notify_one();
}

Session& Engine::add(std::unique_ptr<Subject> subject) {
  if (sessions() >= kSessions) throw Failure(503, fmt::format("{} sessions are open already; close one", kSessions));
  const std::string id = new_id();
  Held& held = sessions_[id];
  held.session = std::make_unique<Session>(id, std::move(subject));
  return *held.session;
}

void Engine::add(std::shared_ptr<Job> job) {
  if (jobs() >= kJobs) throw Failure(503, fmt::format("{} texts are being made already; try again later", kJobs));
  jobs_.push_back(std::move(job));
}

Session* Engine::find(const std::string& id) {
  const auto found = sessions_.find(id);
  return found == sessions_.end() ? nullptr : found->second.session.get();
}

void Engine::remove(const std::string& id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  found->second.session->outbox->close();
  sessions_.erase(found);
}

bool Engine::attach(const std::string& id) { return !std::exchange(sessions_.at(id).attached, true); }

void Engine::work() {
  std::deque<std::function<void()>> all;
  {
    const std::lock_guard lock(mutex_);
    all.swap(posted_);
  }
  for (auto& one : all) one();
}

// A session that fails stops, and says why; the others go on.
Clock::time_point Engine::take_turns() {
  const auto now = Clock::now();
  auto next = Clock::time_point::max();
  std::vector<std::string> unread;
  for (auto& [id, held] : sessions_) {
    Session& session = *held.session;
    if (!held.attached && now > held.born + kUnread) unread.push_back(id);
    if (!held.attached) next = std::min(next, held.born + kUnread);
    if (session.due() <= now) {
      try {
        session.turn();
      } catch (const std::exception& error) {
        session.fail_with(message_of(error));
      }
    }
    next = std::min(next, session.due());
  }
  for (const auto& id : unread) remove(id);
  std::erase_if(jobs_, [now](const auto& job) { return job->due() <= now && !job->turn(); });
  for (const auto& job : jobs_) next = std::min(next, job->due());
  return next;
}

void Engine::run() {
  try {
    compute();
  } catch (...) {
    stop();
    end();
    throw;
  }
  end();
}

void Engine::compute() {
  for (;;) {
    work();
    const auto next = take_turns();
    std::unique_lock lock(mutex_);
    const auto there = [this] { return stopping_ || !posted_.empty(); };
    if (next == Clock::time_point::max())
      wake_.wait(lock, there);
    else if (next > Clock::now())
      wake_.wait_until(lock, next, there);
    if (stopping_) return;
  }
}

void Engine::end() {
  for (auto& [id, held] : sessions_) held.session->outbox->close();
  jobs_.clear();
  work();  // whoever waits for an answer gets one
  sessions_.clear();
}

}  // namespace lapse
