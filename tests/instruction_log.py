"""The log of the instruction task, checked line by line against the world file alone (`Checker`), and how often things happen in it
against how often they must (`Chances`)."""

import collections
import re

import numpy


def spaced(text):
    return " ".join(re.sub(r'([.,;:!?"()\[\]])', r" \1 ", text).split())


class World:
    """Rooms and agents by the names that a log gives them."""

    def __init__(self, data):
        nodes = data["nodes"]
        name = {key: spaced(node["name"]) for key, node in nodes.items() if "name" in node}
        self.exits = {name[r]: [name[n] for n in nodes[r]["neighbors"]] for r in data["rooms"]}
        self.start = {name[a]: name[nodes[a]["container_node"]["target_id"]] for a in data["agents"]}
        self.looks = {}
        for r in data["rooms"]:
            things = [o for o in nodes[r]["contained_nodes"] if nodes[o].get("object")]
            things = [spaced(f"{nodes[o].get('name_prefix', '')} {nodes[o]['name']}") for o in things]
            see = [f"You see {' , '.join(things)} ."] if things else []
            paths = f"Paths lead to {' , '.join('the ' + e for e in self.exits[name[r]])} ."
            self.looks[name[r]] = [spaced(nodes[r]["desc"]), *see, paths]


class WrongLog(Exception):
    pass


class Checker:
    """Follows one log. `distances`: words between each order and its execution; `late`: words of whole rounds."""

    FORMS = [
        ("begin", r"You are the (.+) in the (.+) \."),
        ("go", r"You go to the (.+) \."),
        ("people", r"People here : (.+) \."),
        ("arrives", r"The (.+) arrives from the (.+) \."),
        ("leaves", r"The (.+) leaves for the (.+) \."),
        ("asks", r'The (.+) says " can you tell the (.+) that the (.+) wants to see them \? "'),
        ("tells", r'You tell the (.+) " (.+) wants to see you ! "'),
        ("chatter", r"You overhear :( .+)?"),
    ]

    def __init__(self, world):
        self.world, self.room, self.words, self.orders = world, None, 0, 0
        self.distances, self.awaited = [], []

    def need(self, truth, what):
        if not truth:
            raise WrongLog(f"line {self.number}: {what}: {self.line}")

    def check(self, lines):
        for self.number, self.line in enumerate(lines, 1):
            self.read(self.line)
            self.words += len(self.line.split()) + 1  # the line's end is a word
        return self

    def read(self, line):
        if self.awaited:  # the rest of a look, which nothing may interrupt
            self.need(line == self.awaited.pop(0), "not what is to be seen here")
            return
        for kind, form in self.FORMS:
            if match := re.fullmatch(form, line):
                if self.looking and kind != "people":
                    self.end_of_look()
                self.need(kind == "begin" or self.room, "no game has begun")
                return getattr(self, kind)(*match.groups())
        self.need(False, "no line of a log")

    looking = False  # the people of a room that was just entered may yet be named

    def enter(self, room):
        self.need(room in self.world.exits, "no such room")
        self.room, self.present, self.since, self.looking = room, set(), {}, True
        self.awaited = [] if room in self.known else list(self.world.looks[room])
        self.known.add(room)

    def end_of_look(self):
        self.looking = False
        if self.first:
            at = {a for a, r in self.world.start.items() if r == self.room} - {self.me}
            self.need(self.present == at, "at the start others are here")
            self.first = False

    def begin(self, me, room):
        self.need(self.world.start.get(me) == room, "no agent begins here")
        self.me, self.known, self.open, self.first, self.order_at = me, set(), {}, True, 0
        self.enter(room)

    def go(self, room):
        self.need(room in self.world.exits[self.room], "no path leads there")
        self.need(not set(self.open) & self.present, "goes though somebody here is to be told")
        self.enter(room)

    def people(self, text):
        self.need(self.looking, "not at a look")
        names = [self.agent(n[4:]) for n in text.split(" , ") if n.startswith("the ")]
        self.need(text == " , ".join("the " + n for n in names) and len(set(names)) == len(names), "no list")
        self.present = set(names)
        self.end_of_look()

    def agent(self, name):
        self.need(name in self.world.start and name != self.me, f"no other agent {name!r}")
        return name

    def arrives(self, who, origin):
        self.need(self.agent(who) not in self.present, "was here already")
        self.need(self.room in self.world.exits.get(origin, ()), "no path leads here from there")
        self.present.add(who)
        self.since[who] = len(self.distances)

    def leaves(self, who, room):
        self.need(self.agent(who) in self.present, "was not here")
        self.need(room in self.world.exits[self.room], "no path leads there")
        # Between its arrival and its departure the viewpoint had a turn, and then tells somebody.
        told = who not in self.open or who not in self.since or self.since[who] < len(self.distances)
        self.need(told, "was to be told, and was not")
        self.present.discard(who)

    def asks(self, speaker, target, who):
        self.need(self.agent(speaker) == who and speaker in self.present, "the speaker is not here")
        self.need(self.agent(target) not in self.present, "the target is here")
        self.need(target not in self.open, "the target has an open task")
        self.open[target] = (speaker, self.words + len(self.line.split()) + 1)
        self.orders += 1

    def tells(self, target, speaker):
        self.need(target in self.open, "nobody asked for that")
        here = [t for t in self.open if t in self.present]
        self.need(here and here[0] == target, "not the first asked for of those who are here")
        asked, at = self.open.pop(target)
        self.need(asked == speaker, "another one asked")
        self.distances.append(self.words - at)

    def chatter(self, _):
        pass


class Chances(Checker):
    """Also follows whose turn it is, so that each chance that the rules give is one trial: of a log in which chatter begins every round.

    Of agents that are not seen it holds how likely each is where (a filter, exact: they move independently of each other), so that it
    knows how likely each arrival is, and from where.
    """

    ASKS, MOVES = 0.25, 0.5
    WIDTH = 4  # standard errors

    def __init__(self, world):
        super().__init__(world)
        self.agents, self.rooms = list(world.start), list(world.exits)
        self.place = {room: i for i, room in enumerate(self.rooms)}
        goes = numpy.zeros((len(self.rooms), len(self.rooms)))
        for room, exits in world.exits.items():
            for other in exits:
                goes[self.place[room], self.place[other]] = self.MOVES / len(exits)
        self.goes = goes  # from, to: the probability in a turn
        self.stays_or_goes = goes + (1 - self.MOVES) * numpy.eye(len(self.rooms))
        self.trials = collections.defaultdict(lambda: [0, 0.0, 0.0])  # what may happen: how often, expected, variance
        self.choices = {}  # of what: how often each was chosen
        self.turn = None  # whose turn is next; None before a game's first round

    # Whose turn it is

    def chatter(self, text):
        self.silent_until(len(self.agents))
        self.turn = 0

    def begin(self, me, room):
        self.silent_until(len(self.agents))
        self.turn = None
        self.choice("viewpoint", self.agents, me)
        self.where = {a: self.at(r) for a, r in self.world.start.items() if a != me}
        super().begin(me, room)

    def act(self, who):
        self.need(self.turn is not None and self.turn <= self.agents.index(who), f"not the turn of {who}")
        self.silent_until(self.agents.index(who))
        self.turn += 1

    def silent_until(self, end):
        """The turns of agents of whom the log says nothing."""
        while self.turn is not None and self.turn < end:
            agent = self.agents[self.turn]
            self.turn += 1
            if agent == self.me:
                self.need(not set(self.open) & self.present, f"before it {agent} did not tell")
                self.trial("the viewpoint goes", self.MOVES, False)
            elif agent in self.present:
                self.may_ask(False)
                self.trial("another leaves", self.MOVES, False)
            else:
                self.unseen(agent, None)

    # What happens in a turn

    def tells(self, target, speaker):
        self.act(self.me)
        super().tells(target, speaker)

    def go(self, room):
        self.act(self.me)
        self.trial("the viewpoint goes", self.MOVES, True)
        self.choice(("exit", "viewpoint", self.room), self.world.exits[self.room], room)
        super().go(room)

    def asks(self, speaker, target, who):
        self.act(speaker)
        self.may_ask(True)
        free = self.free()
        super().asks(speaker, target, who)
        self.choice(("target", len(free)), range(len(free)), free.index(target))

    def leaves(self, who, room):
        self.act(who)
        self.may_ask(False)
        self.trial("another leaves", self.MOVES, True)
        self.choice(("exit", "another", self.room), self.world.exits[self.room], room)
        super().leaves(who, room)
        self.where[who] = self.at(room)

    def arrives(self, who, origin):
        self.act(who)
        self.unseen(who, origin)
        super().arrives(who, origin)

    def free(self):
        """Whom somebody here may want to see."""
        return [a for a in self.agents if a != self.me and a not in self.present and a not in self.open]

    def may_ask(self, asked):
        if self.free():
            self.trial("another asks", self.ASKS, asked)

    # Who is where

    def at(self, room):
        return numpy.eye(len(self.rooms))[self.place[room]]

    def unseen(self, agent, origin):
        """A turn of one that is elsewhere: it arrives from `origin`, or (None) does not arrive."""
        here, before = self.place[self.room], self.where[agent]
        arrives = before * self.goes[:, here]
        self.trial("another arrives", arrives.sum(), origin is not None)
        for place in numpy.flatnonzero(arrives):
            self.trial(("arrives", self.room, self.rooms[place]), arrives[place], self.rooms[place] == origin)
        if origin is not None:
            self.need(origin in self.place and before[self.place[origin]] > 0, "it cannot have been there")
            self.where[agent] = self.at(self.room)
        else:
            self.where[agent] = self.elsewhere(before @ self.stays_or_goes)

    def elsewhere(self, where):
        where[self.place[self.room]] = 0
        self.need(where.sum() > 0, "somebody must be here, and is not seen")
        return where / where.sum()

    def end_of_look(self):
        super().end_of_look()
        for agent, where in self.where.items():
            if agent in self.present:
                self.need(where[self.place[self.room]] > 0, f"{agent} cannot be here")
                self.where[agent] = self.at(self.room)
            else:
                self.where[agent] = self.elsewhere(where.copy())

    # What was counted

    def trial(self, what, probability, happened):
        trial = self.trials[what]
        trial[0] += happened
        trial[1] += probability
        trial[2] += probability * (1 - probability)

    def choice(self, what, among, chosen):
        self.choices.setdefault(what, dict.fromkeys(among, 0))[chosen] += 1

    def deviations(self):
        """How far each is from what the rules say, in standard errors. Of chi-squares: of their sum."""
        found = {}
        for what, (count, expected, variance) in self.trials.items():
            if isinstance(what, str):
                found[what] = (count - expected) / variance**0.5
        squares = collections.defaultdict(lambda: [0.0, 0])  # a sum, degrees of freedom
        for what, (count, expected, variance) in self.trials.items():
            if not isinstance(what, str) and expected >= 5:
                squares["rooms of arrivals"][0] += (count - expected) ** 2 / variance
                squares["rooms of arrivals"][1] += 1
        for what, counts in self.choices.items():
            expected = sum(counts.values()) / len(counts)
            if expected >= 5 and len(counts) > 1:
                kind = what if isinstance(what, str) else " of ".join(what[:2]) if what[0] == "exit" else what[0]
                squares[kind][0] += sum((count - expected) ** 2 / expected for count in counts.values())
                squares[kind][1] += len(counts) - 1
        for what, (total, freedom) in squares.items():
            found[what] = (total - freedom) / (2 * freedom) ** 0.5
        return found

    def wrong(self):
        return {what: round(far, 1) for what, far in self.deviations().items() if abs(far) > self.WIDTH}


def summary(checker):
    """Of the distances: how many, their mean and their median."""
    ordered = sorted(checker.distances)
    return {
        "words": checker.words,
        "orders": checker.orders,
        "executions": len(ordered),
        "mean": sum(ordered) / len(ordered),
        "median": ordered[len(ordered) // 2],
        "longest": ordered[-1],
    }
