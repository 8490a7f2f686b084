//! "Did you mean": the nearest of a few known words.

/// The word of `known` that `word` is most probably a slip of: same letters in another case, a beginning, or at most two
/// (in short words one) letters changed, missing, added or swapped.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(MAX_LEN + 1).flat_map(char::to_lowercase).collect();
    if word.is_empty() || word.len() > MAX_LEN {
        return None;
    }
    let tolerance = if word.len() < 5 { 1 } else { 2 };
    known
        .iter()
        .map(|k| (distance(&word, &k.chars().collect::<Vec<_>>()), *k))
        .filter(|(d, k)| *d <= tolerance && *d < k.len() || word.len() >= 3 && starts_with(k, &word))
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// Longer words are no slip of any word of ours, and need no table.
const MAX_LEN: usize = 32;

fn starts_with(known: &str, word: &[char]) -> bool {
    word.len() <= known.chars().count() && known.chars().zip(word).all(|(a, b)| a == *b)
}

/// Edits (with neighbouring letters swapped as one) that turn `a` into `b`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows: Vec<Vec<usize>> = vec![(0..=b.len()).collect()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(row[j - 1] + 1).min(rows[i - 1][j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}
