"""The log of the instruction task, checked line by line against the world file alone."""

import re


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
