//! Drawing of a topology: boxes, lines and texts with coordinates in pixels.

/// Drawing as an SVG.
#[derive(Debug, Default)]
pub(crate) struct Drawing {
    /// Accessible description.
    pub(crate) title: String,
    pub(crate) width: usize,
    pub(crate) height: usize,
    pub(crate) boxes: Vec<Rectangle>,
    pub(crate) lines: Vec<Line>,
    pub(crate) texts: Vec<Label>,
}

/// Box with rounded corners.
#[derive(Debug)]
pub(crate) struct Rectangle {
    pub(crate) class: &'static str,
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) width: usize,
    pub(crate) height: usize,
}

/// Line between two boxes.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) path: String,
    pub(crate) stroke: usize,
}

/// Text at the middle of `x`.
#[derive(Debug)]
pub(crate) struct Label {
    pub(crate) class: &'static str,
    pub(crate) x: usize,
    pub(crate) y: usize,
    pub(crate) text: String,
}

/// Device in a drawing.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) name: String,
    /// Second line; empty if there is none.
    pub(super) detail: String,
    /// Group of adjacent items.
    pub(super) numa: Option<String>,
}

/// Linked devices, by their places among the items.
#[derive(Debug)]
pub(super) struct Island {
    pub(super) members: Vec<usize>,
    pub(super) label: String,
    /// True if every pair of devices has a direct link.
    pub(super) is_complete: bool,
}

/// Direct link between two items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Number of links.
    pub(super) count: usize,
}

/// Distance between the left edges of two adjacent items.
const STEP: usize = 100;
const ITEM_WIDTH: usize = 90;
const ITEM_HEIGHT: usize = 40;
/// Distance between an item and the edge of its group.
const PAD: usize = 8;
/// Additional distance between two groups.
const GROUP_GAP: usize = 24;
/// Height of an island and of the space below it.
const BAR_HEIGHT: usize = 26;
const BAR_STEP: usize = 44;
/// Approximate width of a letter of a label.
const LETTER_WIDTH: usize = 7;

/// Maximum stroke of a line, in pixels.
const MAX_STROKE: usize = 6;

impl Drawing {
    fn rectangle(
        &mut self,
        class: &'static str,
        (x, y): (usize, usize),
        (width, height): (usize, usize),
    ) {
        self.boxes.push(Rectangle { class, x, y, width, height });
        self.width = self.width.max(x.saturating_add(width).saturating_add(PAD));
        self.height = self.height.max(y.saturating_add(height).saturating_add(PAD));
    }

    fn text(&mut self, class: &'static str, (x, y): (usize, usize), text: &str) {
        self.texts.push(Label { class, x, y, text: text.to_owned() });
    }

    fn line(&mut self, path: String, count: usize) {
        self.lines.push(Line { path, stroke: count.clamp(1, MAX_STROKE) });
    }

    fn item(&mut self, (x, y): (usize, usize), item: &Item) {
        self.rectangle("unit", (x, y), (ITEM_WIDTH, ITEM_HEIGHT));
        let middle = x.saturating_add(ITEM_WIDTH / 2);
        if item.detail.is_empty() {
            self.text("name", (middle, y.saturating_add(25)), &item.name);
        } else {
            self.text("name", (middle, y.saturating_add(18)), &item.name);
            self.text("detail", (middle, y.saturating_add(32)), &item.detail);
        }
    }
}

/// Draws items side by side in boxes of their groups. Islands are bars above them, with a line to each member; further
/// direct links are arcs.
pub(super) fn draw_row(title: &str, items: &[Item], bars: &[&Island], arcs: &[Pair]) -> Drawing {
    let mut drawing = Drawing { title: title.to_owned(), ..Drawing::default() };
    let lefts = lefts(items);
    let middle =
        |at: usize| lefts.get(at).copied().unwrap_or_default().saturating_add(ITEM_WIDTH / 2);
    let rows = bar_rows(bars);
    let bar_rows = rows.iter().map(|row| row.saturating_add(1)).max().unwrap_or_default();
    let reach = arcs.iter().map(|pair| pair.to.saturating_sub(pair.from)).max();
    let height_of_arcs = reach.map_or(0, arc_height);
    let bottom_of_bars = bar_rows.saturating_mul(BAR_STEP);
    let top = PAD
        .saturating_add(bottom_of_bars)
        .saturating_add(height_of_arcs)
        .saturating_add(if items.iter().any(|item| item.numa.is_some()) { PAD } else { 0 });
    for pair in arcs {
        let (from, to) = (middle(pair.from), middle(pair.to));
        // A quadratic curve rises half as high as its control point.
        let control = arc_height(pair.to.saturating_sub(pair.from)).saturating_mul(2);
        let width = to.saturating_sub(from);
        let path = format!("M{from} {top}q{} -{control} {width} 0", width / 2);
        drawing.line(path, pair.count);
    }
    for (bar, row) in bars.iter().zip(rows) {
        let y = PAD.saturating_add(row.saturating_mul(BAR_STEP));
        draw_bar(&mut drawing, bar, y, top, middle);
    }
    draw_groups(&mut drawing, items, &lefts, top);
    for (item, left) in items.iter().zip(&lefts) {
        drawing.item((*left, top), item);
    }
    drawing
}

/// Left edge of each item.
fn lefts(items: &[Item]) -> Vec<usize> {
    let mut x = PAD.saturating_mul(2);
    let mut before: Option<&Item> = None;
    let mut lefts = Vec::new();
    for item in items {
        if let Some(before) = before {
            let gap = if before.numa == item.numa { 0 } else { GROUP_GAP };
            x = x.saturating_add(STEP).saturating_add(gap);
        }
        lefts.push(x);
        before = Some(item);
    }
    lefts
}

/// Row of each bar, so that bars of the same row do not overlap.
fn bar_rows(bars: &[&Island]) -> Vec<usize> {
    let span = |island: &Island| {
        let first = island.members.iter().min().copied().unwrap_or_default();
        (first, island.members.iter().max().copied().unwrap_or_default())
    };
    let mut rows: Vec<Vec<(usize, usize)>> = Vec::new();
    let mut found = Vec::new();
    for bar in bars {
        let (start, end) = span(bar);
        let is_free = |row: &Vec<(usize, usize)>| row.iter().all(|(a, b)| end < *a || start > *b);
        let at = rows.iter().position(is_free).unwrap_or(rows.len());
        match rows.get_mut(at) {
            Some(row) => row.push((start, end)),
            None => rows.push(vec![(start, end)]),
        }
        found.push(at);
    }
    found
}

fn draw_bar(
    drawing: &mut Drawing,
    island: &Island,
    y: usize,
    top: usize,
    middle: impl Fn(usize) -> usize,
) {
    let places = || island.members.iter().map(|at| middle(*at));
    let (Some(first), Some(last)) = (places().min(), places().max()) else {
        return;
    };
    let below = y.saturating_add(BAR_HEIGHT);
    for x in places() {
        drawing.line(format!("M{x} {below}V{top}"), 2);
    }
    let half = ITEM_WIDTH / 2;
    let (x, width) =
        (first.saturating_sub(half), last.saturating_sub(first).saturating_add(ITEM_WIDTH));
    drawing.rectangle("island", (x, y), (width, BAR_HEIGHT));
    // A label that does not fit is part of the summary only.
    let is_short = island.label.chars().count().saturating_mul(LETTER_WIDTH) <= width;
    let label = match island.label.split_once(':') {
        Some((name, _)) if !is_short => name,
        _ => &island.label,
    };
    let middle = first.saturating_add(last) / 2;
    drawing.text("name", (middle, y.saturating_add(18)), label);
}

fn draw_groups(drawing: &mut Drawing, items: &[Item], lefts: &[usize], top: usize) {
    let mut placed = items.iter().zip(lefts).peekable();
    while let Some((first, left)) = placed.next() {
        let Some(name) = &first.numa else { continue };
        let mut right = left.saturating_add(ITEM_WIDTH);
        while let Some((_, left)) = placed.next_if(|(item, _)| item.numa == first.numa) {
            right = left.saturating_add(ITEM_WIDTH);
        }
        let (x, y) = (left.saturating_sub(PAD), top.saturating_sub(PAD));
        let width = right.saturating_sub(x).saturating_add(PAD);
        let height = ITEM_HEIGHT.saturating_add(PAD).saturating_add(26);
        drawing.rectangle("group", (x, y), (width, height));
        let is_short = name.len().saturating_mul(LETTER_WIDTH) <= width;
        let shown = if is_short { name } else { name.trim_start_matches("NUMA node ") };
        let text = (x.saturating_add(width / 2), y.saturating_add(height).saturating_sub(8));
        drawing.text("detail", text, shown);
    }
}

/// Height of an arc over this number of items.
fn arc_height(reach: usize) -> usize {
    reach.saturating_mul(10).saturating_add(8).min(110)
}

/// Vertical distance between the rows of a torus.
const ROW_STEP: usize = 64;
/// Length of a line that continues at the opposite edge.
const STUB: usize = 16;

/// Draws items along the rows of a torus; `None` if they do not fill it.
pub(super) fn draw_torus(
    title: &str,
    items: &[Item],
    (rows, columns): (u32, u32),
) -> Option<Drawing> {
    let [rows, columns] = [rows, columns].map(|count| usize::try_from(count).unwrap_or_default());
    if columns == 0 || rows.checked_mul(columns)? != items.len() {
        return None;
    }
    let mut drawing = Drawing { title: title.to_owned(), ..Drawing::default() };
    let start = PAD.saturating_add(STUB);
    let corner = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        (
            start.saturating_add(column.saturating_mul(STEP.saturating_add(STUB))),
            start.saturating_add(row.saturating_mul(ROW_STEP)),
        )
    };
    for (at, _) in items.iter().enumerate() {
        let (x, y) = corner(at);
        let (right, bottom) = (x.saturating_add(ITEM_WIDTH), y.saturating_add(ITEM_HEIGHT));
        let (middle, center) =
            (x.saturating_add(ITEM_WIDTH / 2), y.saturating_add(ITEM_HEIGHT / 2));
        let next = STEP.saturating_add(STUB).saturating_sub(ITEM_WIDTH);
        let is_last_column = at % columns == columns.saturating_sub(1);
        if !is_last_column {
            drawing.line(format!("M{right} {center}h{next}"), 2);
        } else if columns > 2 {
            drawing.line(format!("M{right} {center}h{STUB}"), 2);
        }
        if at % columns == 0 && columns > 2 {
            drawing.line(format!("M{x} {center}h-{STUB}"), 2);
        }
        let gap = ROW_STEP.saturating_sub(ITEM_HEIGHT);
        let is_last_row = at / columns == rows.saturating_sub(1);
        if !is_last_row {
            drawing.line(format!("M{middle} {bottom}v{gap}"), 2);
        } else if rows > 2 {
            drawing.line(format!("M{middle} {bottom}v{STUB}"), 2);
        }
        if at / columns == 0 && rows > 2 {
            drawing.line(format!("M{middle} {y}v-{STUB}"), 2);
        }
    }
    for (at, item) in items.iter().enumerate() {
        drawing.item(corner(at), item);
    }
    // The lines at the right and lower edge.
    drawing.width = drawing.width.saturating_add(STUB);
    drawing.height = drawing.height.saturating_add(STUB);
    Some(drawing)
}
