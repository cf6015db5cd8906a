SELECT definition FROM yaoki.definitions WHERE type = :type;
