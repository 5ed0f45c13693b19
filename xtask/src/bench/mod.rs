pub(crate) fn main(_: &[String]) -> anyhow::Result<()> {
    Ok(())
}
