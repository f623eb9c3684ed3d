# SPDX-License-Identifier: Apache-2.0
"""What a picture of `ipcshim topo --svg` must hold: it is whole, everything that is seen is in
it, nothing lies outside of it, and no text over another or over a frame that it isn't in."""
import re
import xml.etree.ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"
WIDTH = {"b": 7.2, "s": 6.2}  # of a letter, at most; 6.8 otherwise
RING = re.compile(r"M(\d+) (\d+)V(\d+)H(\d+)V(\d+)")


class Box:
    def __init__(self, left, top, right, bottom, what):
        self.left, self.top, self.right, self.bottom, self.what = left, top, right, bottom, what

    def over(self, other):
        return (self.left < other.right and other.left < self.right and
                self.top < other.bottom and other.top < self.bottom)

    def within(self, other):
        return (self.left >= other.left and self.right <= other.right and
                self.top >= other.top and self.bottom <= other.bottom)


def text_box(text):
    kinds = text.get("class").split()
    width = len(text.text) * next((WIDTH[kind] for kind in kinds if kind in WIDTH), 6.8)
    left = float(text.get("x")) - (width / 2 if "m" in kinds else 0)
    bottom = float(text.get("y"))
    return Box(left, bottom - 10, left + width, bottom + 2, text.text)


def rect_box(rect):
    left, top = float(rect.get("x")), float(rect.get("y"))
    return Box(left, top, left + float(rect.get("width")), top + float(rect.get("height")),
               rect.get("class"))


def parse(svg):
    """The picture, its texts and its boxes."""
    root = ET.fromstring(svg)
    texts = [text_box(text) for text in root.iter(SVG + "text")]
    boxes = [rect_box(rect) for rect in root.iter(SVG + "rect") if rect.get("class")]
    return root, texts, boxes


def overlaps(texts, boxes):
    for i, one in enumerate(texts):
        for other in texts[:i]:
            if one.over(other):
                yield f"{one.what!r} over {other.what!r}"
        for box in boxes:
            if one.over(box) and not one.within(box):
                yield f"{one.what!r} leaves its {box.what}"
    for i, one in enumerate(boxes):
        for other in boxes[:i]:
            if one.over(other) and not one.within(other) and not other.within(one):
                yield f"a {one.what} over a {other.what}"


def columns(seen, boxes, texts):
    """By place in the ring, the box of its GPU."""
    at = {text.what: text for text in texts}
    gpus = [box for box in boxes if box.what == "gpu"]
    for gpu in seen["ring"]:
        name, address = at.get(f"GPU{gpu}"), at.get(seen["gpus"][gpu]["address"])
        inside = [box for box in gpus if name and name.within(box)]
        if len(inside) == 1 and address and address.within(inside[0]):
            yield inside[0]


def check_ring(root, places):
    """A path from each GPU to the next, the last one's to the first."""
    hops = [RING.fullmatch(path.get("d")) for path in root.iter(SVG + "path")
            if path.get("class") == "ring"]
    hops = [hop for hop in hops if hop]
    if len(places) > 1 and len(hops) != len(places):
        yield f"{len(hops)} hops of {len(places)} GPUs"
        return
    for i, hop in enumerate(hops):
        start, end = places[i], places[(i + 1) % len(places)]
        if not (start.left < int(hop[1]) < start.right and end.left < int(hop[4]) < end.right):
            yield f"hop {i} does not lead from a GPU to the next"


def check(svg, seen):
    """Complaints. seen: what --json tells of the same machine."""
    root, texts, boxes = parse(svg)
    whole = Box(0, 0, float(root.get("width")), float(root.get("height")), "picture")
    yield from (f"{box.what!r} leaves the picture" for box in texts + boxes
                if not box.within(whole))
    yield from overlaps(texts, boxes)
    places = list(columns(seen, boxes, texts))
    if len(places) != len(seen["gpus"]):
        yield f"{len(places)} of {len(seen['gpus'])} GPUs are drawn"
        return
    yield from check_ring(root, places)
    told = " ".join(text.what for text in texts)
    for group in seen["groups"]:
        if group["kind"] in ("switch", "hostbridge") and group["key"] not in told:
            yield f"{group['kind']} {group['key']} is missing"
    size = seen["ring_groups"]["size"] if seen["ring_groups"] else None
    if told.count("group of") != (len(places) // size if size else 0):
        yield "groups of the ring"
