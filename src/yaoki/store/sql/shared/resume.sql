DELETE FROM yaoki.paused WHERE kind = :kind AND name = :name;
